"""Sizes that are known at run time alone: each target computes what Python computes, negative numbers included."""

from __future__ import annotations

import random

import pytest
import torch

from torchstone.compiler.ir import parse_graph
from torchstone.compiler.ir.dims import Dim, dim_max, dim_min, evaluate, floordiv, mod, symbol
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.transforms.expand import expand

MOST = 50


def _drawn(rng: random.Random, depth: int) -> Dim:
    """A size, of any sign; divisors are at least 1."""
    if not depth:
        return rng.choice([symbol("n"), symbol("m"), rng.randint(-4, 9)])
    a, b = _drawn(rng, depth - 1), _drawn(rng, rng.randrange(depth))
    divisor = rng.choice([rng.randint(1, 5), symbol("n") + rng.randint(1, 2), symbol("n") + symbol("m")])
    made = [a + b, a - b, floordiv(a, divisor), mod(a, divisor), mod(a, divisor), dim_max(a, b), dim_min(a, b)]
    return rng.choice(made)


@pytest.mark.few(3)
@pytest.mark.parametrize("target", ["linalg", "stablehlo", "tensorrt"])
@pytest.mark.parametrize("seed", range(3))
def test_sizes_at_run_time_are_what_python_computes(target: str, seed: int) -> None:
    rng = random.Random(seed)
    drawn = [dim_min(dim_max(_drawn(rng, 3), 0), MOST) for _ in range(16)]
    drawn += [mod(_drawn(rng, 2), symbol("n") + 1) for _ in range(16)]
    drawn = [size for size in drawn if not isinstance(size, int)]
    lines = [
        f"  %v{at}: f32[1] = flat.slice(%z) {{start=[<{size}>], limit=[<{size + 1}>], stride=[1]}}"
        for at, size in enumerate(drawn)
    ]
    lines += ["  %p: f32[n] = flat.neg(%x)", "  %q: f32[m] = flat.neg(%y)"]  # TensorRT drops inputs that nothing reads
    names = ", ".join([*(f"%v{at}" for at in range(len(drawn))), "%p", "%q"])
    text = "\n".join([f"graph @f(%z: f32[{MOST + 1}], %x: f32[n], %y: f32[m]) {{", *lines, f"  return {names}", "}"])
    chosen = find_target(target)
    kernel = chosen.lower(expand(parse_graph(text), chosen.takes)).load()
    for n, m in ((1, 1), (2, 7), (5, 3), (9, 4)):
        got = kernel((torch.arange(MOST + 1).float(), torch.zeros(n), torch.zeros(m)))
        assert [int(tensor) for tensor in got[:-2]] == [evaluate(size, {"n": n, "m": m}) for size in drawn], (n, m)
