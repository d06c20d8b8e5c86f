"""Loop nests outlined from long functions: what they compute, and that equal ones are one function."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from torchstone.compiler.driver import compile
from torchstone.compiler.lowering.mlir_passes import outline
from torchstone.compiler.runtime.cpu import cache, code, jit


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "SMALL_WORK", -1)
    monkeypatch.setattr(outline, "NESTS", 4)
    cache.CACHE.clear()
    torch.manual_seed(3)


@pytest.fixture
def nests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the functions that are called, call by call, in the modules compiled."""
    called: list[str] = []

    def noted(module, options):
        outline.outline_nests(module, options.provider)
        assert module.operation.verify()
        for op in module.body.operations[0].regions[0].blocks[0].operations:
            if op.operation.name == "func.call":
                called.append(op.operation.attributes["callee"].value)
        return module

    monkeypatch.setattr(code, "CPU", code.CPU.with_run("outline-nests", noted))
    return called


def layers(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.softmax(x @ weight, -1) + x.flip(0)
    return x


def unlike(x: Tensor, *weights: Tensor) -> Tensor:
    parts = []
    for n, weight in enumerate(weights):
        y = (x[: n + 1] @ weight).cumsum(0)
        parts += [y[-1:], torch.cat([y, x[n:]]).amax(0, keepdim=True), y.sort(-1).values[:1]]
    return torch.cat(parts)


PROGRAMS: dict[str, Callable[..., Tensor]] = {"layers": layers, "unlike": unlike}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_results_are_those_of_eager(name: str, nests: list[str]) -> None:
    fn, args = PROGRAMS[name], (torch.randn(9, 6), *(torch.randn(6, 6) for _ in range(6)))
    exe = compile(fn, args)
    torch.testing.assert_close(exe(*args), fn(*args))
    assert len(nests) > outline.NESTS
    apart = tuple(torch.randn(a.shape[0], 2 * a.shape[1])[:, ::2] for a in args)
    torch.testing.assert_close(exe(*apart), fn(*apart))


def test_equal_nests_are_one_function(nests: list[str]) -> None:
    args = (torch.randn(9, 6), *(torch.randn(6, 6) for _ in range(6)))
    compile(layers, args)
    assert len(set(nests)) * 2 < len(nests)


def test_a_run_time_size(nests: list[str]) -> None:
    args = (torch.randn(9, 6), *(torch.randn(6, 6) for _ in range(6)))
    sizes = ({0: torch.export.Dim("n", min=2)}, *(None for _ in args[1:]))
    exe = compile(layers, args, dynamic_shapes=(sizes[0], sizes[1:]))
    for rows in (9, 4):
        more = (torch.randn(rows, 6), *args[1:])
        torch.testing.assert_close(exe(*more), layers(*more))
    assert len(nests) > outline.NESTS


def test_a_check_in_a_long_program_still_raises(nests: list[str]) -> None:
    def fn(x: Tensor, index: Tensor, *weights: Tensor) -> Tensor:
        return layers(x, *weights).index_select(0, index)

    args = (torch.randn(9, 6), torch.tensor([1, 8]), *(torch.randn(6, 6) for _ in range(6)))
    exe = compile(fn, args)
    torch.testing.assert_close(exe(*args), fn(*args))
    assert len(nests) > outline.NESTS
    with pytest.raises((IndexError, RuntimeError)):
        exe(args[0], torch.tensor([1, 9]), *args[2:])


def test_a_short_function_stays_whole(nests: list[str]) -> None:
    x = torch.randn(9, 6)
    torch.testing.assert_close(compile(lambda x: torch.softmax(x, -1), (x,))(x), torch.softmax(x, -1))
    assert not nests
