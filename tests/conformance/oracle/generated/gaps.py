"""Functions whose results lie in a union of intervals, known in closed form, with gaps between them.

Each is a jump of an ill-conditioned angle, times or plus something smooth, under a function that rises. Rounding
decides on which interval a result lies, and where in it; no rounding takes it into a gap.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.conformance.oracle.generated.building import CHAOTIC, DTYPES, Builder
from torchstone.conformance.oracle.tolerances import tolerance
from torchstone.conformance.oracle.ulp import ulp
from torchstone.conformance.program.program import Program, Ref

Intervals = list[tuple[float, float]]


@dataclass(frozen=True)
class GapFunction:
    """A program of one input, and the intervals that its results lie in, whatever is rounded."""

    family: str
    program: Program
    x: Tensor
    intervals: Intervals

    def answers_in_gaps(self, rng: random.Random, count: int) -> list[float]:
        """Numbers in gaps between the intervals, or beyond them all, with room for the ULPs of a right answer."""
        first, last = self.intervals[0], self.intervals[-1]
        extent = last[1] - first[0]
        gaps = [(a[1], b[0]) for a, b in itertools.pairwise(self.intervals)]
        gaps += [(first[0] - extent, first[0] - 0.1 * extent), (last[1] + 0.1 * extent, last[1] + extent)]
        found: list[float] = []
        for _ in range(50 * count):
            low, high = rng.choice(gaps)
            value = low + (high - low) * rng.uniform(0.1, 0.9)
            rounded = float(torch.tensor(value, dtype=torch.float64).to(self.x.dtype))
            if len(found) < count and math.isfinite(rounded) and not self.possible(rounded):
                found.append(rounded)
        return found

    def possible(self, value: float) -> bool:
        """Whether a number lies in an interval, or as near to one as roundings of the steps after the jump go."""
        room = _room(self.intervals, self.x.dtype)
        return any(low - room <= value <= high + room for low, high in self.intervals)


def _room(intervals: Intervals, dtype: torch.dtype) -> float:
    """How far four steps take a number beside the intervals, each off by its tolerance."""
    largest = max(abs(end) for pair in intervals for end in pair)
    return 4 * tolerance(dtype).ulps * float(ulp(torch.tensor(largest, dtype=torch.float64), dtype))


Family = Callable[[Builder, Ref, Ref, float], tuple[Ref, Intervals]]
"""From an angle, something in [-1, 1] and how much of it is added, to the result and its intervals."""


def _around(values: list[float], by: float) -> Intervals:
    return [(value - by, value + by) for value in sorted(values)]


def _sign(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
    jump = b("sign", b("sin", angle))
    return b("mul", jump, b("add", b("mul", wave, by), 1.0)), _around([-1.0, 1.0], by)


def _copysign(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
    return b("copysign", b("add", b("mul", wave, by), 1.0), b("cos", angle)), _around([-1.0, 1.0], by)


def _integers(name: str, low: int, high: int, height: float) -> Family:
    def family(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
        jump = b(name, b("mul", b("sin", angle), height))
        return b("add", jump, b("mul", wave, by)), _around(list(map(float, range(low, high + 1))), by)

    return family


def _remainder(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
    modulus = b.rng.choice([2.0, 3.0])
    jump = b(b.rng.choice(["remainder", "fmod"]), b("floor", b("abs", angle)), modulus)
    return b("add", jump, b("mul", wave, by)), _around([float(k) for k in range(int(modulus))], by)


def _where(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
    above, below = b.rng.uniform(1, 3), -b.rng.uniform(0.5, 3)
    condition = b(b.rng.choice(["gt", "le"]), b("sin", angle), b.rng.uniform(-0.5, 0.5))
    sides = b("add", b("mul", wave, by), above), b("add", b("mul", wave, by), below)
    return b("where", condition, *sides), _around([above, below], by)


def _threshold(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
    jump = b("nn.functional.threshold", b("sin", angle), 0.5, -2.0)
    return b("add", jump, b("mul", wave, by)), [(-2 - by, -2 + by), (0.5 - by, 1 + by)]


def _table(pick: str) -> Family:
    def family(b: Builder, angle: Ref, wave: Ref, by: float) -> tuple[Ref, Intervals]:
        rivals = [b("sin", angle), b("cos", angle), b("sin", b("mul", angle, 0.7))]
        rows = b("stack", rivals, 0)
        if pick == "argmax":
            at = b("argmax", rows, 0)
        else:
            at = b("select", b("argsort", rows, 0), 0, 1)
        values = [-1.5, 0.25, 2.0]
        one_hot = [b("mul", b("Tensor.to", b("eq", at, k), b.dtype), value) for k, value in enumerate(values)]
        jump = b("add", b("add", one_hot[0], one_hot[1]), one_hot[2])
        return b("add", jump, b("mul", wave, by)), _around(values, by)

    return family


FAMILIES: dict[str, Family] = {
    "sign": _sign,
    "copysign": _copysign,
    "floor": _integers("floor", -3, 2, 2.9),
    "round": _integers("round", -2, 2, 2.4),
    "ceil": _integers("ceil", -1, 2, 1.9),
    "trunc": _integers("trunc", -2, 2, 2.9),
    "many floors": _integers("floor", -20, 19, 19.25),  # of bfloat16, 2 ULPs of the sine and 2 of the product below 20
    "remainder": _remainder,
    "where": _where,
    "threshold": _threshold,
    "argmax": _table("argmax"),
    "argsort": _table("argsort"),
}

RISING: dict[str, tuple[Callable[[Builder, Ref], Ref], Callable[[float], float]]] = {
    "itself": (lambda b, r: r, lambda v: v),
    "affine": (lambda b, r: b("add", b("mul", r, 1.5), 0.75), lambda v: 1.5 * v + 0.75),
    "exp": (lambda b, r: b("exp", b("mul", r, 0.25)), lambda v: math.exp(0.25 * v)),
    "atan": (lambda b, r: b("atan", r), math.atan),
    "sinh": (lambda b, r: b("sinh", b("mul", r, 0.25)), lambda v: math.sinh(0.25 * v)),
}


def gap_function(seed: int) -> GapFunction:
    """The gap function of a seed: families and dtypes in turn, all else at random."""
    rng = random.Random(seed)
    dtype = DTYPES[seed % len(DTYPES)]
    b = Builder(rng, dtype)
    family = list(FAMILIES)[seed // len(DTYPES) % len(FAMILIES)]
    source = b(rng.choice(["exp", "cosh", "expm1"]), Ref("x"))
    chaos = rng.choice([0.01, 0.1, 1.0]) * CHAOTIC[dtype]
    wave = b(rng.choice(["sin", "cos"]), b.angle(source, rng.choice([3.0, 0.3 * chaos, 3.0 * chaos])))
    out, intervals = FAMILIES[family](b, b.angle(source, chaos), wave, rng.choice([0.05, 0.1, 0.2]))
    rise, of = RISING[rng.choice(["itself"] * 3 + list(RISING))]
    out = rise(b, out)
    x = torch.rand(rng.choice([1, 1, 4, 16]), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if rng.random() < 0.25:  # beside something large, which has nothing to do with it
        out = b("cat", [out, b("mul", Ref("x"), 5e3)])
    x = (0.1 + 0.4 * x).to(dtype)
    room = _room(intervals, dtype)  # which the function that rises may make larger
    return GapFunction(family, b.program(out), x, [(of(low - room), of(high + room)) for low, high in intervals])
