"""What OpenVINO has wrong on the CPU: needs torch and openvino."""

import openvino
import torch


class M(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def run(fn, *args):
    exported = torch.export.export(M(fn), args)
    model = openvino.convert_model(exported, input=[openvino.PartialShape(list(arg.shape)) for arg in args])
    request = openvino.Core().compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}).create_infer_request()
    request.infer([arg.numpy() for arg in args])
    return [torch.from_numpy(value.data.copy()) for value in request.output_tensors]


def stack(x, y):
    return torch.vstack((x, y))


def distance(x, y):
    return torch.cdist(x, y, 0.0)


x, y = torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0])
print(torch.erfc(x), run(torch.erfc, x))  # 1.5e-12 and 2.2e-17, and 0
print(torch.var_mean(x), run(torch.var_mean, x))  # a variance of 0.5, and of 0.25
print(stack(x, y).shape, run(stack, x, y)[0].shape)  # [2, 2] and [4]
print(distance(x[None], y[None]), run(distance, x[None], y[None]))  # 2 and inf
