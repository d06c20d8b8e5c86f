"""What torch-mlir has wrong in its lowering to StableHLO: needs torch and torch-mlir."""

import torch
from torch_mlir.extras import fx_decomp_util
from torch_mlir.fx import export_and_import


class M(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


def lower(fn, x):
    program = torch.export.export(M(fn), (x,)).run_decompositions(fx_decomp_util.get_decomposition_table())
    return export_and_import(program, output_type="stablehlo", decomposition_table={})


print(lower(torch.max, torch.tensor([1, 2], dtype=torch.uint8)))  # starts at 128: the maximum of 1 and 2 is 128
for fn, x in (
    (lambda x: x.chalf(), torch.rand(2)),
    (lambda x: torch.nn.functional.max_pool2d(x, 2, ceil_mode=True, return_indices=True), torch.rand(1, 1, 5, 5)),
):
    try:
        lower(fn, x)
        print("ok")
    except Exception as error:
        print(str(error)[:600])
lower(lambda x: torch.logsumexp(x, 0), torch.tensor(1.0))  # the process dies
