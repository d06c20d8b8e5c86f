"""Rewritten programs compute the same: a backend that contradicts itself is found, and a right one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from torchstone.conformance.backends import load
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.rewrites import REWRITES, values_of
from torchstone.conformance.variants.rewritten import pairs

X, Y = Ref("x"), Ref("y")
BY_NAME = {rewrite.name: rewrite for rewrite in REWRITES}


def _case(*calls: tuple[Any, ...], number: int = 0, **inputs: Tensor) -> Case:
    """A case of calls of the form (target, arguments); its last result is what it gives."""
    made = tuple(Call(f"torch.{target}", args, {}, f"v{at}") for at, (target, *args) in enumerate(calls))
    program = Program(tuple(inputs), made, Ref(made[-1].result))
    return Case(program, inputs, "test", "test", "float32", index=number)


def _rewritten(name: str, case: Case) -> Program:
    return BY_NAME[name].apply(case, values_of(case))


SQUARE = torch.arange(12.0).reshape(3, 4) - 5


@pytest.mark.parametrize(
    ("name", "calls", "expected"),
    [
        ("copied", [("neg", X)], ["torch.clone", "torch.neg"]),
        ("transposed", [("neg", X)], ["torch.transpose", "torch.Tensor.contiguous", "torch.transpose", "torch.neg"]),
        ("commuted", [("mul", X, Y)], ["torch.mul"]),
        ("padded", [("neg", X)], ["torch.narrow", "torch.cat", "torch.neg", "torch.narrow"]),
        ("split", [("neg", X)], ["torch.narrow", "torch.neg", "torch.narrow", "torch.neg", "torch.cat"]),
        ("split", [("sum", X, [1])], ["torch.narrow", "torch.sum", "torch.narrow", "torch.sum", "torch.cat"]),
        ("folded", [("amax", X)], ["torch.narrow", "torch.amax", "torch.narrow", "torch.amax", "torch.maximum"]),
    ],
)
def test_what_a_rewrite_makes_of_a_call(name: str, calls: list[tuple[Any, ...]], expected: list[str]) -> None:
    case = _case(*calls, x=SQUARE, y=SQUARE * 2)
    program = _rewritten(name, case)
    assert [call.target for call in program.calls] == expected
    assert equal_tensors(program(*case.fresh_args()), case.program(*case.fresh_args()))


@pytest.mark.torture
def test_pytorchs_decompositions_are_written_down() -> None:
    case = _case(("nn.functional.hardswish", X), ("sum", Ref("v0")), x=SQUARE)
    program = _rewritten("decomposed", case)
    assert {call.target.split(".")[3] for call in program.calls} >= {"clamp", "mul", "sum"}
    torch.testing.assert_close(program(*case.fresh_args()), case.program(*case.fresh_args()))


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("commuted", [("sub", X, Y)]),
        ("padded", [("sum", X, [1])]),
        ("padded", [("softmax", X, 0)]),
        ("split", [("sum", X, [0])]),
        ("split", [("cumsum", X, 0)]),
        ("folded", [("mean", X)]),
        ("decomposed", [("mm", X, Y)]),
    ],
)
def test_what_it_is_not_about_stays(name: str, calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(NotApplicable):
        _rewritten(name, _case(*calls, x=torch.ones(4, 4), y=torch.ones(4, 4)))


@pytest.mark.parametrize("calls", [[("Tensor.neg_", X)], [("rand_like", X)], [("as_strided", X, (2, 2), (1, 2))]])
def test_writes_random_numbers_and_layouts_are_left_alone(calls: list[tuple[Any, ...]]) -> None:
    assert isinstance(apply(_case(*calls, x=SQUARE), "rewritten"), Untested)


def test_several_rewrites_are_asked_and_all_sometime() -> None:
    seen: set[str] = set()
    for number in range(12):
        case = _case(
            ("mul", X, Y),
            ("sum", Ref("v0"), [1]),
            ("nn.functional.hardswish", Ref("v1")),
            number=number,
            x=SQUARE,
            y=SQUARE,
        )
        chosen = [pair.rewrite.name for pair in pairs(case)]
        assert 2 <= len(chosen) <= 3 and chosen == [pair.rewrite.name for pair in pairs(case)]
        seen.update(chosen)
    assert seen >= {"copied", "transposed", "commuted", "padded", "split", "decomposed"}


class _Wrong(TorchDispatchMode):
    """Eager with an ATen op that is wrong where its operand is not contiguous."""

    def __init__(self, op: Any, wrong: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.op, self.wrong = op, wrong

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return self.wrong(out) if func is self.op and not args[0].is_contiguous() else out


class _EvenRows(TorchDispatchMode):
    """Eager with an op that is wrong where the length of dim 0 is even."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.ops.aten.abs.default and args[0].shape[0] % 2 == 0 else out


class _In(Eager):
    """Eager inside of a mode, which eager itself is not in."""

    def __init__(self, mode: Callable[[], TorchDispatchMode]) -> None:
        super().__init__()
        self.mode = mode

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        def run(*tensors: Tensor) -> Any:
            with self.mode():
                return fn(*tensors)

        return run


def _verdicts(case: Case, backend: Any) -> tuple[Verdict, Verdict]:
    rewritten = apply(case, "rewritten")
    assert isinstance(rewritten, Case)
    return run_case(case, backend), run_case(rewritten, backend)


def test_a_backend_that_is_wrong_on_other_sizes() -> None:
    """No comparison with eager has a tensor of an even size."""
    found = set()
    for number in range(12):
        plain, asked = _verdicts(_case(("abs", X), number=number, x=SQUARE), _In(_EvenRows))
        assert plain.outcome is Outcome.PASS, plain.message
        if asked.outcome is Outcome.MISMATCH:
            found.add(asked.evidence["rewrite"])
            assert f"rewritten ({asked.evidence['rewrite']}), it gives other numbers: output: " in asked.message
            assert "torch.abs" in asked.evidence["program"]
    assert found == {"padded", "split"}


def test_eager_itself_is_wrong() -> None:
    """Where eager has the bug too, no comparison with eager shows it, and the rewritten program does."""
    case = _case(("amax", X, [1]), number=3, x=SQUARE.t().contiguous().t())
    with _Wrong(torch.ops.aten.amax.default, lambda out: out + 1):
        plain, asked = _verdicts(case, load("eager"))
    assert plain.outcome is Outcome.PASS, plain.message
    assert asked.outcome is Outcome.MISMATCH, asked.evidence


@pytest.mark.torture
def test_eager_is_wrong_where_numbers_are_rounded() -> None:
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)).t().contiguous().t()
    for number in range(8):
        case = _case(("exp", X), number=number, x=x)
        with _Wrong(torch.ops.aten.exp.default, lambda out: out * 1.01):
            plain, asked = _verdicts(case, load("eager"))
        assert plain.outcome is Outcome.PASS, plain.message
        if asked.outcome is Outcome.MISMATCH:
            assert "it gives other numbers, and so does eager" in asked.message
            return
    raise AssertionError("none of the rewrites shows it")


def test_last_bits_ties_and_other_kernels_are_nobodys_fault() -> None:
    """Rounding differs from one program to the other, and so does which of two equal elements comes first."""
    noisy = _In(
        lambda: _Wrong(torch.ops.aten.exp.default, lambda out: torch.nextafter(out, torch.full_like(out, 99.0)))
    )
    tied = torch.tensor([[1.0, 1.0, 0.0], [2.0, 2.0, 2.0]])
    for number in range(6):
        for case in (_case(("exp", X), number=number, x=SQUARE / 4), _case(("argsort", X), number=number, x=tied)):
            assert all(verdict.outcome is Outcome.PASS for verdict in _verdicts(case, noisy))


@pytest.mark.torture
def test_eager_and_linalg_agree_with_themselves_on_generated_programs() -> None:
    from torchstone.fuzz.generator.generate import nth_program

    asked = 0
    for index in range(150):
        case = apply(nth_program(21, index), "rewritten")
        for backend in ("eager", "linalg"):
            verdict = run_case(case, load(backend)) if isinstance(case, Case) else None
            asked += verdict is not None
            assert verdict is None or "rewrite" not in verdict.evidence, (index, backend, verdict.message)
    assert asked > 150
