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
    args = [torch.view_as_real(arg) if arg.is_complex() else arg for arg in args]  # pairs, in ONNX
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


def softmax64(x):
    return torch.softmax(x, 0, dtype=torch.float64)


def scaled(x, a, b):
    return torch.addr(x, a, b, beta=0.2)


def poisson(x, target):
    return torch.nn.functional.poisson_nll_loss(x, target, log_input=False)


def spread(x):
    return torch.var(x, correction=0.9)


def pool(x):
    return torch.nn.functional.max_pool1d(x, 2)


def transform_error(size):
    x = torch.randint(0, 255, (size,), generator=torch.Generator().manual_seed(0)).to(torch.complex64)
    right = torch.fft.ifft(x.to(torch.complex128))
    return [
        (y - right).abs().max().item() for y in (torch.fft.ifft(x), torch.view_as_complex(run(torch.fft.ifft, x)[0]))
    ]


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
small = torch.tensor([1e-8])
print(torch.log1p(small), run(torch.log1p, small)[0])  # 1e-8 and 0: log(1 + x)
print(
    softmax64(x)[0].item(), run(softmax64, x)[0][0].item()
)  # 0.26894142 and 0.26894143: computed in float32, then widened
one = torch.ones(1, dtype=torch.float64)
print(run(lambda x: x + 1e-8, 0 * small)[0], run(lambda x: x * 1.000001, one)[0].item())  # 0 and 1: left out
print(poisson(0 * small, 1 + small), run(poisson, 0 * small, 1 + small)[0])  # 18.42 and inf: so is its eps
three = torch.tensor([7, 8.5, 9], dtype=torch.float64)
print(spread(three).item(), run(spread, three)[0].item())  # 1.03174605 and 1.03174602
print(run(pool, torch.tensor([[torch.nan, 1.0]]))[0])  # 1, and NaN in eager
print(
    scaled(one, one, 0 * one).item(), run(scaled, one, one, 0 * one)[0].item()
)  # 0.2 and 0.200000003: a factor of float32
print(torch.nonzero(torch.tensor(1.0)).shape, run(torch.nonzero, torch.tensor(1.0))[0].shape)  # [1, 0] and [1, 1]
low = torch.tensor([-17.0])
print(torch.sigmoid(low), run(torch.sigmoid, low)[0])  # 4.1e-8 and 8.9e-8
print(transform_error(4096), transform_error(4105))  # 4.5e-7 and 5.7e-6; 8.8e-6 and 0.013
spike = torch.zeros(6, dtype=torch.complex64)
spike[2] = -2.55e38
print(torch.fft.ifft(spike)[0], run(torch.fft.ifft, spike)[0][0])  # -4.25e37 and NaN
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
