"""Programs that fail, one for each stage: the error says what failed, in which op, on which line, and why."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch.export import Dim

from torchstone.compiler import driver
from torchstone.compiler.diagnostics import GuardError, TorchstoneError, Unsupported
from torchstone.compiler.lowering.linalg import build, elementwise

X = torch.arange(4.0)
SIZES = (torch.randn(6), torch.randn(3)), ({0: Dim.DYNAMIC}, {0: Dim.DYNAMIC})


def leaves(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() + 1)  # leaves


def widens(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x.double())[0]  # widens


def draws(x: torch.Tensor) -> torch.Tensor:
    return torch.bernoulli(x / 4)  # draws


def exponential(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    return torch.exp(y)  # exponential


def joined(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x, 2 * x))  # joined


def taken(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return 2 * x[index]  # taken


def rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (2 * x).reshape(2, -1) + y  # rows


def line(fn: Callable[..., Any]) -> str:
    """The line of a program that it marks with its own name, as errors quote it."""
    first = fn.__code__.co_firstlineno
    with open(__file__) as file:
        marked = [n for n, text in enumerate(file, 1) if text.rstrip().endswith(f"# {fn.__name__}")]
    return f"{__file__}:{next(n for n in marked if n > first)} in {fn.__name__}\n"


def failure(fn: Callable[..., Any], *args: Any, **options: Any) -> TorchstoneError:
    with pytest.raises(TorchstoneError) as caught:
        driver.compile(fn, args, **options)(*args)
    return caught.value


def test_capture() -> None:
    error = failure(leaves, X)
    assert isinstance(error, Unsupported) and error.stage == "capture" and error.op == "Tensor.numpy"
    assert "takes values out of the program" in str(error) and line(leaves) in str(error)


@pytest.mark.parametrize(("target", "why"), [("tosa", "TOSA has no float64"), ("tensorrt", "no float64 tensors")])
def test_contract(target: str, why: str) -> None:
    error = failure(widens, X, target=target)
    assert isinstance(error, Unsupported) and error.stage == "contract" and error.op == "aten._to_copy.default"
    assert f"flat.cast: {why}" in error.message or why in error.message
    assert "f64[4] = aten._to_copy.default(%" in str(error) and line(widens) in str(error)


def test_the_chain_of_expansions_is_told() -> None:
    error = failure(draws, X, library_calls=False)
    assert isinstance(error, Unsupported) and "random numbers" in error.message
    assert "f32[4] = aten.rand" in str(error) and "introduced by aten.bernoulli.default" in str(error)
    assert line(draws) in str(error)


def test_lowering_that_breaks() -> None:
    """A bug of ours is no verdict on the program: the error stays what it is, and says where it came up."""
    with (
        mock.patch.dict(build.STRUCTURED, {"flat.concat": lambda e, op: {}["seeded"]}),
        pytest.raises(KeyError) as caught,
    ):
        driver.compile(joined, (X,))(X)
    told = "".join(traceback.format_exception(caught.value))
    assert "flat.concat(%" in told and line(joined) in told and "introduced by aten.cat.default" in told


def test_lowering_that_is_wrong() -> None:
    """What MLIR's verifier says, at the user's line."""

    def narrowed(scope: Any, x: Any) -> Any:
        from torchstone.compiler.mlir import ir

        return ir.Operation.create("arith.negf", results=[ir.F16Type.get()], operands=[x]).result

    with mock.patch.dict(elementwise.FLOAT, {"exp": narrowed}):
        error = failure(exponential, X)
    assert error.stage == "compile" and "verification failed" in error.message
    where = line(exponential).partition(" in ")[0].replace(__file__, f'"{__file__}"')
    assert f'loc("flat.exp"({where}' in str(error) and "requires the same type for all operands" in str(error)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [((8, 3), r"sizes s0=8, s1=3: \(s0//2\) == s1 must hold"), ((7, 3), r"sizes s0=7: .*\(s0, 2\) == 0 must hold")],
)
def test_sizes_that_do_not_fit(sizes: tuple[int, int], why: str) -> None:
    args, dynamic = SIZES
    run = driver.compile(rows, args, dynamic_shapes=dynamic)
    with pytest.raises(GuardError, match=why) as caught:
        run(*map(torch.randn, sizes))
    assert caught.value.stage == "run" and line(rows) in str(caught.value)
    given = torch.randn(10), torch.randn(5)
    torch.testing.assert_close(run(*given), rows(*given))


def test_arguments_that_do_not_fit() -> None:
    run = driver.compile(taken, (X, torch.tensor([1])))
    with pytest.raises(GuardError, match=r"%x0 was compiled as f32\[4\], got f64\[4\]"):
        run(X.double(), torch.tensor([1]))
    with pytest.raises(GuardError, match=r"like \(\*, \*\), called like \(\*, index=\[\*, \*\]\)"):
        run(X, index=[torch.tensor([1])] * 2)


@pytest.mark.parametrize("target", ["linalg", "evaluator", "tensorrt"])
def test_values_that_do_not_fit(target: str) -> None:
    run = driver.compile(taken, (X, torch.tensor([1])), target=target)
    with pytest.raises(RuntimeError, match="index is out of bounds for dimension with size 4") as caught:
        run(X, torch.tensor([4]))
    assert "in aten.index.Tensor\n" in str(caught.value) and line(taken) in str(caught.value)


def test_names_that_nobody_knows() -> None:
    with pytest.raises(TorchstoneError, match=r'no target "linlag" .did you mean "linalg"'):
        driver.compile(taken, (X, torch.tensor([1])), target="linlag")
