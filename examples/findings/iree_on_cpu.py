"""What IREE makes of a few one-op programs on the CPU; needs iree-base-compiler, iree-base-runtime, iree-turbine.

The last one ends the process.
"""

import iree.runtime as rt
import torch
from iree.compiler.api import Output, Session, Source
from iree.turbine import aot


class Module(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def run(fn, *args):
    session = Session()
    session.set_flags(
        "--iree-input-type=torch",
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
        "--iree-input-demote-f64-to-f32=false",
    )
    text = str(aot.export(Module(fn), args=args).mlir_module)
    invocation = session.invocation()
    invocation.enable_console_diagnostics()
    if not (invocation.parse_source(Source.wrap_buffer(session, text.encode() + b"\0")) and invocation.execute()):
        return "does not compile"
    binary = Output.open_membuffer()
    invocation.output_vm_bytecode(binary)
    config = rt.Config("local-sync")
    module = rt.load_vm_module(rt.VmModule.copy_buffer(config.vm_instance, bytes(binary.map_memory())), config)
    out = module.main(*[arg.numpy() for arg in args])
    return out.to_host() if hasattr(out, "to_host") else out


for fn, x in [(torch.asinh, -0.00128), (torch.atanh, -0.0001422), (torch.atan, -0.65814), (torch.tan, -0.00127995)]:
    x = torch.full((4,), x)
    print(fn.__name__, x[0].item(), "IREE", run(fn, x)[0], "exact", fn(x.double())[0].item())
print("logcumsumexp(1e4):", run(lambda x: torch.logcumsumexp(x, 0), torch.full((2,), 1e4)))
x, at = torch.tensor([[[-1.7], [3.6]]]), torch.tensor([[[1], [2]]])
print("max_unpool1d:", run(lambda x, at: torch.nn.functional.max_unpool1d(x, at, 3, 2, output_size=(1, 2, 3)), x, at))
pixels, place = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([[[[-3.0, 0.0]]]])
print("grid_sample:", run(lambda x, at: torch.nn.functional.grid_sample(x, at, align_corners=False), pixels, place))
print("log10:", run(torch.log10, torch.ones(2)))
print("float64 sin:", run(torch.sin, torch.ones(2, dtype=torch.float64)))
print("det of no rows:", run(torch.linalg.det, torch.ones(0, 0)))
print("kthvalue:", run(lambda x: torch.kthvalue(x, 2), torch.rand(4)))
print("int8 * 3:", run(lambda x: x * 3, torch.ones(2, dtype=torch.int8)), flush=True)
