"""Bounds of sizes, and symbols told by what is made of them."""

from __future__ import annotations

from itertools import product

import pytest

from torchstone.compiler.ir.dims import Expr, evaluate, interval, parse_dim, renamed, solve

EXACT = ("n", "2*n+1", "n*m", "n-m+9", "-2*n+20", "floordiv(n, 2)", "floordiv(n, m)", "max(n, m)", "min(n, m)+1")
WIDER = ("n*n-n", "mod(n, m)", "mod(n, 3)", "floordiv(n, m)*m", "max(n, 2)-n")


@pytest.mark.parametrize("text", [*EXACT, *WIDER])
@pytest.mark.parametrize("ranges", [{"n": (0, 7), "m": (1, 3)}, {"n": (4, 4), "m": (2, 5)}])
def test_interval_holds_every_value(text: str, ranges: dict[str, tuple[int, int]]) -> None:
    dim = parse_dim(text)
    low, high = interval(dim, ranges)
    every = [range(a, b + 1) for a, b in ranges.values()]
    values = [evaluate(dim, dict(zip(ranges, point, strict=True))) for point in product(*every)]
    assert low <= min(values) and max(values) <= high
    if text in EXACT:
        assert (low, high) == (min(values), max(values))


@pytest.mark.parametrize(
    ("text", "size", "found"),
    [
        ("n", 5, ("n", 5)),
        ("3*n+2", 11, ("n", 3)),
        ("2*n-1", 9, ("n", 5)),
        ("2*n", 7, ("n", 3)),
        ("n+m", 5, None),
        ("n*m", 6, None),
        ("-n+4", 3, None),
        ("floordiv(n, 2)", 3, None),
    ],
)
def test_solve(text: str, size: int, found: tuple[str, int] | None) -> None:
    dim = parse_dim(text)
    assert isinstance(dim, Expr)
    assert solve(dim, size) == found


def test_renamed() -> None:
    assert str(renamed(parse_dim("2*s1+s10"), {"s1": "n"})) == "2*n+s10"
