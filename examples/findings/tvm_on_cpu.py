"""What TVM has wrong on the CPU: needs torch and apache-tvm."""

import torch
import tvm
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class M(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def run(fn, x):
    module = from_exported_program(torch.export.export(M(fn), (x,)))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return torch.from_dlpack(machine["main"](tvm.runtime.from_dlpack(x))[0])


x = torch.tensor([1e-4, 1e-6])
print(torch.atanh(x), run(torch.atanh, x))  # tvm gives 1.0002e-4 and 9.8348e-7: it computes log((1 + x) / (1 - x)) / 2
half = torch.tensor([[1, 2], [3, 4], [2, 8]], dtype=torch.bfloat16)
print(torch.max(half, 0).values, run(lambda x: torch.max(x, 0), half))  # not always the largest
print(run(lambda x: torch.bmm(x[None], x[None].mT), half).dtype)  # float32
for fn, x in (
    (torch.argmax, torch.tensor(1.0)),  # Cannot reduce a 0 dim Tensor
    (torch.asin, torch.tensor([1])),  # requires the input tensor to have float dtype
    (lambda x: torch.index_select(x, 0, torch.tensor([0])), torch.tensor(1.0)),  # the input axis 0 is out of range
    (lambda x: torch.nn.functional.conv_transpose1d(x, x, x[0, 0]), half[None, :1, :1]),
):
    try:
        run(fn, x)
    except Exception as error:
        print(str(error).splitlines()[-1])
