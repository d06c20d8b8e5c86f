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
    return runs(1, fn, *args)[0]


def runs(count, fn, *args):
    exported = torch.export.export(M(fn), args)
    model = openvino.convert_model(exported, input=[openvino.PartialShape(list(arg.shape)) for arg in args])
    request = openvino.Core().compile_model(model, "CPU", {"EXECUTION_MODE_HINT": "ACCURACY"}).create_infer_request()
    results = []
    for _ in range(count):
        request.infer([arg.numpy() for arg in args])
        results.append([torch.from_numpy(value.data.copy()) for value in request.output_tensors])
    return results


def stack(x, y):
    return torch.vstack((x, y))


def unfold(x):
    return torch.nn.functional.unfold(x, 2)


def twice(x):
    y = x.exp()
    return y, y


def distance(x, y):
    return torch.cdist(x, y, 0.0)


def soft(x):
    return torch.softmax(x, 0, dtype=torch.float64)


def norm(x):
    return torch.linalg.matrix_norm(x, torch.inf)


x, y = torch.tensor([5.0, 6.0]), torch.tensor([1.0, 2.0])
print(torch.erfc(x), run(torch.erfc, x))  # 1.5e-12 and 2.2e-17, and 0
print(torch.var_mean(x), run(torch.var_mean, x))  # a variance of 0.5, and of 0.25
print(stack(x, y).shape, run(stack, x, y)[0].shape)  # [2, 2] and [4]
print(distance(x[None], y[None]), run(distance, x[None], y[None]))  # 2 and inf
low = torch.tensor([-26.5])
print(torch.nn.functional.softplus(low), run(torch.nn.functional.softplus, low))  # 3.1e-12 and 0
small, near = torch.tensor([1e-5]), torch.tensor([-0.997165])
print(torch.erf(small), run(torch.erf, small))  # 1.1284e-5 and 1.1086e-5
print(torch.erfinv(near), run(torch.erfinv, near))  # -2.1108 and -2.1009
rows = torch.tensor([[[3.0, 1.0, 2.0], [6.0, 5.0, 4.0]]]).expand(2, 2, 3).contiguous()
print(
    [part.shape for part in torch.kthvalue(rows, 1)], [part.shape for part in run(lambda x: torch.kthvalue(x, 1), rows)]
)
print(torch.atan2(torch.tensor(3), torch.tensor(2)), run(torch.atan2, torch.tensor(3), torch.tensor(2)))  # 0.98 and 1
tiny = torch.tensor([1e-8])
print(torch.log1p(tiny), run(torch.log1p, tiny))  # 1e-8 and 0: log(1 + x)
print(soft(x)[0].item(), run(soft, x)[0][0].item())  # 0.26894142 and 0.26894143: computed in float32, then widened
lost = torch.tensor([[torch.nan, 1.0], [2.0, 3.0]])
print(norm(lost), run(norm, lost))  # NaN and 5
zero = torch.tensor(0.0)
print(torch.nonzero(zero).shape, run(torch.nonzero, zero)[0].shape)  # [0, 0] and [0, 1]
print(runs(3, lambda x: x.repeat(()), zero + 5))  # not 5
print(runs(6, torch.bernoulli, zero + 0.03))  # 1 and 0 in turns
print([run(fn, zero.long() - 8, zero.long() + 6) for fn in (torch.gcd, torch.floor_divide)])  # -2 and -1, not 2 and -2
pair = torch.tensor([[[1, 2, 3, 4]]])
print(
    torch.nn.functional.avg_pool1d(pair, 2), run(lambda x: torch.nn.functional.avg_pool1d(x, 2), pair)
)  # [1, 3], [2, 4]
for fn, arg in (
    (twice, x),
    (lambda x: x @ x.mT, torch.ones(2, 0, dtype=torch.int64)),
    (unfold, torch.rand(0, 1, 5, 5)),
):
    try:
        run(fn, arg)
    except Exception as error:
        print(str(error).strip().splitlines()[-1])  # Tensor name is not a number; a Reshape of 0 elements
run(lambda x: x.expand(()), zero)  # the process dies
