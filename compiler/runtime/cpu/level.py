"""Which x86-64 the CPU runtime makes code for: the processor at hand, or a level of the psABI that it is held to.

TORCHSTONE_CPU_LEVEL=x86-64-v3 in the environment, say, gives the code that any processor since 2013 can run: one that
has more computes what those compute. It is read whenever something is compiled. Code is made for x86-64 alone: the
roundings to 16 bits, and how they are called, are written for it.
"""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path

from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean

VARIABLE = "TORCHSTONE_CPU_LEVEL"
NATIVE = "native"
X86_64 = ("x86_64", "AMD64")

# What each level has beside the one before it, as Linux names it (x86-64 psABI, table 3.1).
_FLAGS = {
    "x86-64-v2": "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3",
    "x86-64-v3": "abm avx avx2 bmi1 bmi2 f16c fma movbe",
    "x86-64-v4": "avx512f avx512bw avx512cd avx512dq avx512vl",
}
LEVELS = (NATIVE, *_FLAGS)


def level() -> str:
    """Return the level that code is made for. Raises TorchstoneError (stage ``compile``) where there can be none."""
    wanted = os.environ.get(VARIABLE) or NATIVE
    if problem := refusal() or unavailable(wanted):
        raise TorchstoneError(problem, stage="compile")
    return wanted


def refusal() -> str:
    """Say why no code can be made here, or nothing."""
    machine = platform.machine()
    if machine in X86_64:
        return ""
    return (
        f"the CPU runtime of linalg, tosa and stablehlo makes code for x86-64, and this is {machine or 'unknown'}: "
        "take the target evaluator or tensorrt, or an x86-64 machine"
    )


def unavailable(wanted: str) -> str:
    """Say why the processor cannot be held to a level: there is no such level, or it lacks what the level has."""
    if wanted not in LEVELS:
        known = ", ".join(LEVELS)
        return f"{VARIABLE}: no level {wanted!r}{did_you_mean(wanted, LEVELS)}; there are {known}"
    has = flags()
    levels = list(_FLAGS)[: LEVELS.index(wanted)]
    lacking = [flag for name in levels for flag in _FLAGS[name].split() if flag not in has]
    if not has or not lacking:  # a system that tells nothing is taken at its word
        return ""
    return f"{VARIABLE}: {wanted} needs {', '.join(lacking)}, which this processor has not"


@cache
def flags() -> frozenset[str]:
    """Return what Linux says the processor at hand has; nothing where it does not tell."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.split() for line in lines if line.startswith("flags")), ()))
