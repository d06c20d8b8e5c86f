"""What torch-mlir has wrong in its lowering to linalg: needs torch, torch-mlir and torchstone, which runs it."""

import subprocess
import sys

import torch

from torchstone.conformance.backends.registry import load

ROWS = (
    ("gelu", lambda x: torch.nn.functional.gelu(x, approximate="tanh"), torch.tensor(1.0)),
    ("logcumsumexp", lambda x: torch.logcumsumexp(x, 0), torch.tensor([156.0])),
    (
        "scatter_reduce",
        lambda x: torch.scatter_reduce(x, 0, torch.zeros_like(x), torch.full_like(x, -1), "mean"),
        torch.tensor([0]),
    ),
    ("nonzero", torch.nonzero, torch.tensor(0)),
    ("unfold", lambda x: torch.nn.functional.unfold(x, 1), torch.empty(0, 1, 1, 1)),
)

if sys.argv[1:]:
    name, program, x = ROWS[int(sys.argv[1])]
    print(f"{name:15} torch-mlir {load('torch-mlir-linalg').compile(program, (x,))(x)} eager {program(x)}")
else:
    for i, (name, _, _) in enumerate(ROWS):
        code = subprocess.run([sys.executable, __file__, str(i)]).returncode
        if code < 0:
            print(f"{name:15} killed by signal {-code}")
