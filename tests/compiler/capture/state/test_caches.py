"""Functions with a cache: it counts what the cache holds, and a call fills it."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

TARGET = "evaluator"


def x(number: int = 0) -> torch.Tensor:
    return torch.arange(3.0) + number


def test_what_a_cache_holds_before_counts() -> None:
    held = {"k": 2.0, "misses": 0}

    @functools.lru_cache
    def scale(name, *, by=1):
        held["misses"] += 1
        return held[name] * by

    def program(x):
        return x * scale("k", by=3)

    scale("k", by=3)
    held["k"] = 5.0
    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x(1)), x(1) * 6)
    assert held == {"k": 5.0, "misses": 1}
    scale.cache_clear()
    with pytest.raises(GuardError, match="scale"):
        exe(x())


@pytest.mark.parametrize("size", [None, 8])
def test_a_cache_is_filled_by_a_call_as_by_eager(size: int | None) -> None:
    @functools.lru_cache(size)
    def ramp(n):
        return torch.arange(float(n))

    def program(x):
        return x + ramp(3) * ramp(3)

    exe = compile(program, (x(),), TARGET)
    assert ramp.cache_info().currsize == 0
    for number in range(3):
        assert torch.equal(exe(x(number)), x(number) + torch.tensor([0.0, 1.0, 4.0]))
        assert ramp.cache_info().currsize == 1


def test_a_function_with_a_cache_that_changes_objects() -> None:
    held = {"misses": 0}

    @functools.cache
    def scale():
        held["misses"] += 1
        return 2.0

    with pytest.raises(Unsupported, match=r"scale(.|\n)*test_caches\.py:\d+"):
        compile(lambda x: x * scale(), (x(),), TARGET)
    assert held == {"misses": 0}
    assert scale.cache_info().currsize == 0


def test_what_a_cache_keeps_is_looked_at() -> None:
    @functools.lru_cache
    def rows():
        return [1.0, torch.ones(3)]

    rows()[0] = 5.0

    def program(x):
        return x * rows()[0] + rows()[1]

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), program(x()))
    rows()[1].add_(1)
    with contextlib.suppress(GuardError):
        assert torch.equal(exe(x()), program(x()))
    rows()[0] = 7.0
    with pytest.raises(GuardError, match="rows"):
        exe(x())


def test_what_a_call_puts_into_a_cache_is_looked_at() -> None:
    @functools.lru_cache
    def ramp():
        return torch.arange(3.0)

    def program(x):
        return x + ramp()

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), program(x()))
    ramp().add_(1)
    with pytest.raises(GuardError, match="ramp"):
        exe(x())


@functools.lru_cache
def noise():
    return torch.randn(3)


@functools.lru_cache
def table():
    return [torch.arange(3.0)]


@pytest.mark.parametrize(
    "program",
    [lambda x: x + noise(), lambda x: (x, table()), lambda x: table()[0][1:], lambda x: (x, table().append(1))[0]],
)
def test_what_would_be_other_when_it_is_computed_anew_is_refused(program: Callable[..., Any]) -> None:
    with pytest.raises(Unsupported, match="lru_cache"):
        compile(program, (x(),), TARGET)
    assert not noise.cache_info().currsize + table.cache_info().currsize


@pytest.mark.parametrize("use", [lambda f: f.cache_info().hits, lambda f: f.cache_clear()])
def test_a_cache_that_the_program_looks_at_is_refused(use: Callable[[Any], Any]) -> None:
    @functools.cache
    def scale():
        return 2.0

    scale()
    with pytest.raises(Unsupported, match="cache"):
        compile(lambda x: (x * scale(), use(scale))[0], (x(),), TARGET)
    assert scale.cache_info().currsize == 1


def test_a_method_with_a_cache() -> None:
    class Table:
        @functools.lru_cache(maxsize=4)  # noqa: B019
        def of(self, n):
            return n * 2

    table = Table()
    exe = compile(lambda x: x * table.of(3), (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 6)
    assert Table.of.cache_info().currsize == 1
