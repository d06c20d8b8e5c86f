"""Which stage of its compiler a reduced failure comes from, and the program before and after that stage."""

from __future__ import annotations

import dataclasses

from torchstone.conformance.bisection import bisect, stage_texts
from torchstone.conformance.errors import HarnessError, InputError
from torchstone.reducers.failure import Reduction


def blamed(reduction: Reduction, seconds: float = 60.0) -> Reduction:
    """Return the reduction with the stage that ``bisect`` names, itself where the backend's stages are not known.

    Each trial takes ``seconds`` at most, in a fork of this process.
    """
    try:
        blame = bisect(reduction.case, reduction.backend, seconds)
        texts = stage_texts(reduction.case, reduction.backend, blame, seconds)
    except (InputError, HarnessError):
        return reduction
    if not blame.stage:
        return reduction
    return dataclasses.replace(reduction, blame=str(blame), texts=texts)
