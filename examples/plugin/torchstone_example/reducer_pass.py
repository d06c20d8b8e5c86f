"""The pass ``plainer-ops``: an elementwise op becomes ``add`` or ``neg``, where that fails in the same way.

What is left then says that the op does not matter: the bug is in a layout, a size or a dtype.
"""

from __future__ import annotations

import dataclasses

from torchstone.conformance.program.case import Case
from torchstone.reducers.edit import prune_and_rename
from torchstone.reducers.problem import Rewrite

PLAINER = {
    "torch.add": ("torch.maximum", "torch.minimum", "torch.hypot", "torch.mul", "torch.sub"),
    "torch.neg": ("torch.sigmoid", "torch.tanh", "torch.cos", "torch.sin"),
}


def plainer_ops(case: Case) -> Rewrite[Case]:
    """Try each call with a plainer op of as many operands."""
    for at in range(len(case.program.calls)):
        for plain, targets in PLAINER.items():
            call = case.program.calls[at]
            if call.target in targets:
                plainer = dataclasses.replace(call, target=plain)
                program = case.program.rewrite(lambda c, old=call, new=plainer: new if c is old else c)
                candidate = prune_and_rename(case, program, case.inputs)
                if (yield candidate):
                    case = candidate
