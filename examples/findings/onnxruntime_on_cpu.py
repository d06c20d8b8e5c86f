"""What PyTorch's exporter makes for ONNX Runtime: needs torch, onnx, onnxscript and onnxruntime."""

import onnxruntime
import torch
from onnxruntime import OrtValue


class M(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def run(fn, *args):
    model = torch.onnx.export(M(fn), args, verbose=False).model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    given = {item.name: OrtValue.from_dlpack(arg) for item, arg in zip(session.get_inputs(), args, strict=True)}
    results = session.run_with_ort_values([item.name for item in session.get_outputs()], given)
    return [torch.from_dlpack(result) for result in results]


def norm(x):
    return torch.native_layer_norm(x, (3,), None, None, 1e-5)


def windows(x):
    return torch.nn.functional.avg_pool2d(x, 2, divisor_override=1)


def soft(x, target):
    return torch.nn.functional.cross_entropy(x, target)


def stable(x, target):
    return torch.nn.functional.binary_cross_entropy_with_logits(x, target)


def train(x, mean, var):
    return torch._native_batch_norm_legit(x, None, None, mean, var, True, 0.5, 1e-5)[0]


x = torch.tensor([5.0, 6.0])
print(torch.erfc(x), run(torch.erfc, x))  # 1.5e-12 and 2.2e-17, and 0: it is 1 - erf(x) there
half = torch.tensor(1.5, dtype=torch.bfloat16)
print(torch.sum(half).dtype, run(torch.sum, half)[0].dtype)  # bfloat16 and float32
rows = torch.ones(2, 3, dtype=torch.bfloat16)
print(norm(rows)[1].dtype, run(norm, rows)[1].dtype)  # bfloat16 and float32
batch = torch.tensor([[1.0], [3.0]])
print(train(batch, torch.zeros(1), torch.ones(1)), run(train, batch, torch.zeros(1), torch.ones(1))[0])
pixels = torch.ones(1, 1, 2, 2)
print(windows(pixels), run(windows, pixels)[0])  # 4 and 1
print(torch.angle(torch.tensor([-2])), run(torch.angle, torch.tensor([-2]))[0])  # 3.1416 and 3
sure, no = torch.tensor([-17.0]), torch.tensor([1.0])
print(stable(-sure, no), run(stable, -sure, no)[0])  # 4.1e-8 and 0
chance = torch.full((1000,), 0.25)
print(torch.bernoulli(chance).mean(), run(torch.bernoulli, chance)[0].mean())  # 0.25 and 0.75
for fn, args in (
    (torch.acosh, (half,)),
    (torch.masked.amin, (half,)),
    (torch.masked.var, (x,)),
    (soft, (torch.rand(2, 3), torch.rand(2, 3))),
    (lambda x: torch.all(x, 0), (torch.tensor(1.0),)),
):
    try:
        run(fn, *args)
    except Exception as error:
        print(fn.__name__, str(error.__cause__ or error).splitlines()[0][:150])
