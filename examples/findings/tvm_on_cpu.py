"""What TVM has wrong on the CPU: needs torch and apache-tvm."""

import torch
import tvm
from torch.nn import functional as F
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class M(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def run_all(fn, *args):
    module = from_exported_program(torch.export.export(M(fn), args))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return [torch.from_dlpack(result) for result in machine["main"](*map(tvm.runtime.from_dlpack, args))]


def run(fn, *args):
    return run_all(fn, *args)[0]


def trained(x, mean, var):
    mean, var = mean.clone(), var.clone()
    return F.batch_norm(x, mean, var, training=True), mean, var


def layer(x):
    return torch.native_layer_norm(x, (2,), None, None, 1e-5)


def windows(x):
    return F.avg_pool2d(x, 2, divisor_override=1)


def smooth(x):
    return F.interpolate(x, size=(2, 2), mode="bilinear", antialias=True)


def largest(x):
    return F.max_pool2d(x, 2, return_indices=True)


def line(x):
    return F.interpolate(x, 3, mode="linear")


x = torch.tensor([1e-4, 1e-6])
print(torch.atanh(x), run(torch.atanh, x))  # tvm gives 1.0002e-4 and 9.8348e-7: it computes log((1 + x) / (1 - x)) / 2
half = torch.tensor([[1, 2], [3, 4], [2, 8]], dtype=torch.bfloat16)
print(torch.max(half, 0).values, run(lambda x: torch.max(x, 0), half))  # not always the largest
print(run(lambda x: torch.bmm(x[None], x[None].mT), half).dtype)  # float32
batch = torch.tensor([[1.0], [3.0]])
print(trained(batch, torch.ones(1), torch.ones(1))[1:], run_all(trained, batch, torch.ones(1), torch.ones(1))[1:])
print(layer(batch.T)[1], run_all(layer, batch.T.contiguous())[1])  # the mean, and the result again
image = torch.arange(16.0).reshape(1, 1, 4, 4)
print(windows(image), run(windows, image))  # sums and averages
print(smooth(image), run(smooth, image))
print(largest(image)[1], run_all(largest, image)[1])  # where they are, and 0.0
print(run(F.grid_sample, torch.rand(2, 3, 4, 5), torch.rand(2, 6, 7, 2)).shape)  # not [2, 3, 6, 7]
for fn, x in (
    (torch.isfinite, batch),
    (line, torch.rand(1, 1, 5)),
    (lambda x: torch.heaviside(x, x), batch),
    (torch.argmax, torch.tensor(1.0)),  # Cannot reduce a 0 dim Tensor
    (torch.asin, torch.tensor([1])),  # requires the input tensor to have float dtype
    (lambda x: torch.index_select(x, 0, torch.tensor([0])), torch.tensor(1.0)),  # the input axis 0 is out of range
    (lambda x: torch.nn.functional.conv_transpose1d(x, x, x[0, 0]), half[None, :1, :1]),
):
    try:
        run(fn, x)
    except Exception as error:
        print(str(error).splitlines()[-1])
