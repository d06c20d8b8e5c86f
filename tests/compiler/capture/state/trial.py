"""A generated program on trial: compiled once, called three times with changes between, beside eager."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tests.compiler.capture.state.compare import difference, picture
from tests.compiler.capture.state.programs import Drawn
from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported
from torchstone.compiler.driver import compile


@dataclass(frozen=True)
class Found:
    """How a trial came out: calls that were right, what refused it, what was silently wrong, and traces left."""

    right: int
    refused: str = ""
    wrong: str = ""
    trace: str = ""


def _x(number: int) -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) * 0.3 - 0.5 + number * 0.25


def try_program(drawn: Drawn, target: str, calls: int = 3) -> Found:
    """Compile a drawn program and call it: every call has to be right or refused, and to leave nothing else."""
    mine, theirs = drawn.build(), drawn.build()
    try:
        with torch.no_grad():
            theirs.program(_x(0), theirs.l, theirs.d)
    except Exception:
        return Found(0, "eager")
    theirs = drawn.build()
    before = picture(mine.everything())
    try:
        exe = compile(mine.program, (_x(0), mine.l, mine.d), target)
    except (Unsupported, TorchstoneError) as error:
        exe, refused = None, str(error)
    if left := difference(picture(mine.everything()), before):
        return Found(0, trace=left)
    if exe is None:
        return Found(0, refused)
    for number in range(calls):
        for world in (mine, theirs):
            drawn.change(world, number)
        x, y = _x(number), _x(number)
        try:
            with torch.no_grad():
                expected = theirs.program(y, theirs.l, theirs.d)
        except Exception as error:
            expected = error
        before = picture(mine.everything())
        try:
            got = exe(x, mine.l, mine.d)
        except (GuardError, Unsupported) as error:
            left = difference(picture(mine.everything()), before)
            return Found(number, str(error), trace=left)
        except Exception as error:
            if isinstance(expected, Exception):
                return Found(number, "eager")
            return Found(number, wrong=f"{type(error).__name__}: {error}")
        if isinstance(expected, Exception):
            return Found(number, wrong=f"eager raises {expected!r}, ours gives {got}")
        one, other = picture([got, x, mine.everything()]), picture([expected, y, theirs.everything()])
        if found := difference(one, other):
            return Found(number, wrong=found)
    return Found(calls)
