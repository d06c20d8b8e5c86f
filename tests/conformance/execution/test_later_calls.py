"""Later calls: what a backend bakes in, keeps or overwrites is found; what is right, or refuses by name, passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.execution.test_run_case import Fake, case_of, outcome, running
from torchstone.compiler.diagnostics import GuardError
from torchstone.conformance.backends.protocol import BackendError, BackendGuardError, BackendUnsupported
from torchstone.conformance.execution import later_calls
from torchstone.conformance.execution.later_calls import CALLS, MEMORY, OPTIMIZED, PROGRAM, STRIDES, VALUES
from torchstone.conformance.execution.other_values import other_values
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref

X = torch.linspace(-2, 3, 12).reshape(3, 4)
Y = torch.linspace(1, 2, 12).reshape(3, 4)
Run = Callable[..., Any]


class Tiers(Fake):
    """A backend that makes other code of what is called often."""

    def __init__(self, compiler: Callable[..., Run], optimizer: Callable[..., Run] | None = None) -> None:
        super().__init__(compiler)
        self.compile_optimized = optimizer or compiler


def subtraction(index: int) -> Case:
    """Whether other strides, another program or optimized code are asked is by the index."""
    return case_of("torch.sub", inputs={"x0": X, "x1": Y}).replace(index=index, variant="default")


def asks(case: Case, name: str) -> Case:
    """The case by the index of which this call is made."""
    return next(
        other
        for other in (case.replace(index=index) for index in (0, 1, 2))
        if any(call.name == name for call in later_calls.plan_calls(other, _eager(other)))
    )


def _eager(case: Case) -> Any:
    return later_calls.observe(case.program, case.fresh_args())


def stored_result(fn: Run, args: tuple[Tensor, ...]) -> Run:
    result = fn(*args)
    return lambda *tensors: result.clone()


def one_input_baked_in(fn: Run, args: tuple[Tensor, ...]) -> Run:
    kept = args[1].clone()
    return lambda x, y: fn(x, kept)


def strides_baked_in(fn: Run, args: tuple[Tensor, ...]) -> Run:
    strides = [t.stride() for t in args]

    def run(*tensors: Tensor) -> Any:
        return fn(*(t.as_strided(t.shape, step) for t, step in zip(tensors, strides, strict=True)))

    return run


def wrong_from_the_third_call(fn: Run, args: tuple[Tensor, ...]) -> Run:
    calls: list[None] = []

    def run(*tensors: Tensor) -> Any:
        calls.append(None)
        return fn(*tensors) if len(calls) < 3 else fn(*tensors) + 1

    return run


class Overwriting:
    """The code of the last program compiled stands in the place of every one before."""

    def __init__(self) -> None:
        self.code: list[Run] = []

    def __call__(self, fn: Run, args: tuple[Tensor, ...]) -> Run:
        self.code = [fn]
        return lambda *tensors: self.code[0](*tensors[: len(self.code[0].inputs)])  # type: ignore[attr-defined]


def kept_by(key: Callable[..., Any]) -> Callable[..., Run]:
    """A compiler whose programs keep their results by what they take for the identity of their inputs."""

    def compiler(fn: Run, args: tuple[Tensor, ...]) -> Run:
        known: dict[Any, Any] = {}
        alive: list[Any] = []

        def run(*tensors: Tensor) -> Any:
            place = tuple(map(key, tensors))
            alive.append(tensors)
            if place not in known:
                known[place] = fn(*tensors)
            return known[place].clone()

        return run

    return compiler


def first_memory_baked_in(fn: Run, args: tuple[Tensor, ...]) -> Run:
    first: list[tuple[Tensor, ...]] = []

    def run(*tensors: Tensor) -> Any:
        first.append(tensors)
        return fn(*first[0])

    return run


WRONG: dict[str, tuple[Callable[..., Run], str]] = {
    "the example's result": (stored_result, VALUES),
    "one input's values": (one_input_baked_in, VALUES),
    "results by shape": (kept_by(lambda t: (t.shape, t.dtype)), VALUES),
    "results by id": (kept_by(id), MEMORY),
    "results by address": (kept_by(Tensor.data_ptr), MEMORY),
    "the memory of the first call": (first_memory_baked_in, VALUES),
    "strides": (strides_baked_in, STRIDES),
    "state that goes wrong": (wrong_from_the_third_call, VALUES),
    "one program at a time": (Overwriting(), PROGRAM),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", WRONG)
def test_what_a_backend_keeps_of_its_first_calls_is_found(name: str) -> None:
    compiler, call = WRONG[name]
    verdict = run_case(asks(subtraction(0), call), Fake(compiler))
    assert outcome(verdict) == ("compare", "mismatch", "later-call"), verdict
    assert verdict.evidence[CALLS][-1] == call
    assert f", with {call}: " in verdict.message


@pytest.mark.parametrize("optimizes", [False, True])
def test_a_right_backend_passes_and_is_made_to_compile_again_by_turns(optimizes: bool) -> None:
    backend = (Tiers if optimizes else Fake)(lambda fn, args: fn)
    verdicts = [run_case(subtraction(index), backend) for index in range(8)]
    assert all(verdict.outcome is Outcome.PASS for verdict in verdicts)
    assert all(verdict.evidence[CALLS][:2] == [VALUES, MEMORY] for verdict in verdicts)
    third = [OPTIMIZED] if optimizes else []
    assert [verdict.evidence[CALLS][2:] for verdict in verdicts] == [[STRIDES], [PROGRAM], third, []] * 2


def off_by_one(fn: Run, args: tuple[Tensor, ...]) -> Run:
    return lambda *xs: fn(*xs) + 1


def refuses(fn: Run, args: tuple[Tensor, ...]) -> Run:
    raise BackendUnsupported("not so fast")


def breaks(fn: Run, args: tuple[Tensor, ...]) -> Run:
    raise RuntimeError("the optimizer is broken")


@pytest.mark.parametrize(
    ("optimized", "found", "told"),
    [
        (off_by_one, ("compare", "mismatch", "later-call"), f"call 5, with {OPTIMIZED}: output"),
        (breaks, ("run", "error", ""), f"call 5, with {OPTIMIZED}: RuntimeError: the optimizer is broken"),
        (refuses, ("compare", "pass", ""), ""),
    ],
)
def test_optimized_code_is_on_trial(optimized: Any, found: tuple[str, ...], told: str) -> None:
    """A backend may compile in little time first, and optimize what is called often."""
    verdict = run_case(asks(subtraction(0), OPTIMIZED), Tiers(lambda fn, args: fn, optimized))
    assert outcome(verdict) == found and verdict.message.startswith(told), verdict
    assert verdict.evidence[CALLS][-1].startswith(OPTIMIZED)


def test_a_case_that_is_asked_its_first_call_alone_has_no_later_calls() -> None:
    case, compiled = subtraction(0), []
    verdict = run_case(later_calls.first_call_of(case), Fake(lambda fn, args: compiled.append(fn) or fn))
    assert (verdict.outcome, len(compiled)) == (Outcome.PASS, 1) and CALLS not in verdict.evidence
    assert later_calls.turn_of(case) is not None and later_calls.turn_of(later_calls.first_call_of(case)) is None


@pytest.mark.parametrize(("name", "first"), [("stored_result", False), ("off_by_one", True)])
def test_whether_a_failure_shows_at_the_first_call_is_told(name: str, first: bool) -> None:
    compiler = {"stored_result": stored_result, "off_by_one": off_by_one}[name]
    verdict = run_case(subtraction(0), Fake(compiler))
    assert verdict.failed and later_calls.shows_at_first_call(verdict) is first
    assert run_case(later_calls.first_call_of(subtraction(0)), Fake(compiler)).failed is first


def only_for(args: tuple[Tensor, ...], same: Callable[[Tensor, Tensor], bool], error: Exception, fn: Run) -> Run:
    kept = [arg.as_strided(arg.shape, arg.stride()) for arg in args]

    def run(*tensors: Tensor) -> Any:
        if not all(map(same, tensors, kept)):
            raise error
        return fn(*tensors)

    return run


@pytest.mark.parametrize("error", [BackendUnsupported("baked"), BackendGuardError("baked"), GuardError("baked")])
def test_other_values_refused_by_name_are_no_failure(error: Exception) -> None:
    verdict = run_case(subtraction(0), Fake(lambda fn, args: only_for(args, torch.equal, error, fn)))
    assert verdict.outcome is Outcome.PASS, verdict
    assert verdict.evidence[CALLS][0] == f"{VALUES}: unsupported: baked"


@pytest.mark.parametrize("error", [BackendError("broken", "run"), RuntimeError("broken")])
def test_an_error_for_other_values_is_one(error: Exception) -> None:
    verdict = run_case(subtraction(0), Fake(lambda fn, args: only_for(args, torch.equal, error, fn)))
    assert outcome(verdict) == ("run", "error", ""), verdict
    assert verdict.message.startswith(f"call 3, with {VALUES}: ") and "broken" in verdict.message


def test_a_guard_that_the_example_itself_does_not_meet_is_an_error() -> None:
    def compiler(fn: Run, args: tuple[Tensor, ...]) -> Run:
        return only_for(args, lambda one, other: False, BackendGuardError("no"), fn)

    assert outcome(run_case(subtraction(0), Fake(compiler))) == ("run", "error", "")


def test_any_exception_refuses_other_strides() -> None:
    def compiler(fn: Run, args: tuple[Tensor, ...]) -> Run:
        return only_for(args, lambda one, other: one.stride() == other.stride(), AssertionError("stride"), fn)

    verdict = run_case(asks(subtraction(0), STRIDES), Fake(compiler))
    assert verdict.outcome is Outcome.PASS
    assert verdict.evidence[CALLS][-1] == f"{STRIDES}: unsupported: AssertionError: stride"


def test_any_exception_refuses_other_values_where_eager_reads_them() -> None:
    """``nonzero`` has a size by the values: PyTorch's tracers take it for fixed, and check that in their own words."""
    case = case_of("torch.nonzero", inputs={"x0": torch.tensor([0.0, 1, 0, 2, 0])})
    verdict = run_case(case, Fake(lambda fn, args: only_for(args, torch.equal, RuntimeError("u0 == 2"), fn)))
    assert verdict.outcome is Outcome.PASS
    assert verdict.evidence[CALLS][0].startswith(f"{VALUES}: unsupported")


def test_a_program_that_draws_is_called_with_other_values() -> None:
    """The numbers are judged by distribution; those of inputs that were kept have another."""
    case = case_of("torch.bernoulli", inputs={"x0": torch.linspace(0, 1, 64)})
    assert run_case(case, running(torch.bernoulli)).outcome is Outcome.PASS

    def compiler(fn: Run, args: tuple[Tensor, ...]) -> Run:
        kept = args[0].clone()
        return lambda x: torch.bernoulli(kept)

    verdict = run_case(case, Fake(compiler))
    assert outcome(verdict) == ("compare", "mismatch", "later-call")


def test_what_is_drawn_for_other_values_alone_is_judged_by_its_distribution() -> None:
    """Eager draws the slopes of ``rrelu`` for negative numbers."""
    case = case_of("torch.nn.functional.rrelu", inputs={"x0": torch.tensor([2.0])}, training=True)

    def compiler(low: float) -> Any:
        return lambda fn, args: lambda x: torch.where(x >= 0, x, x * torch.empty_like(x).uniform_(low, 1 / 3))

    assert run_case(case, Fake(compiler(1 / 8))).outcome is Outcome.PASS
    assert outcome(run_case(case, Fake(compiler(0.3)))) == ("compare", "mismatch", "later-call")


def test_programs_that_write_to_their_inputs_are_called_later_too() -> None:
    case = case_of("torch.Tensor.add_", Ref("x0"), 1, inputs={"x0": X}).replace(variant="default")
    for index in (0, 1):
        verdict = run_case(case.replace(index=index), Fake(lambda fn, args: fn))
        assert verdict.outcome is Outcome.PASS
        assert verdict.evidence[CALLS] == [VALUES, MEMORY, (STRIDES, PROGRAM)[index]]


WRITES_BEFORE_GRADIENTS = Program(
    ("x0", "x1"),
    (
        Call("torch.view_as_complex_copy", (Ref("x1"),), {}, "r0"),  # of what needs a gradient eager refuses it
        Call("torch.Tensor.mul_", (Ref("x0"), 2), {}, "r1"),  # as it does this one of a leaf
        Call("torch.Tensor.requires_grad_", (Ref("r1"),), {}, "r2"),
        Call("torch.Tensor.add_", (Ref("x1"), Ref("r2")), {}, "r3"),
        Call("torch.autograd.grad", ([Ref("r3")], [Ref("r2")], [Ref("x1")]), {}, "r4"),
    ),
    (Ref("r4"), Ref("r0")),
)
"""After it both inputs need gradients; the second one is no leaf."""


def test_what_a_program_does_before_it_asks_for_gradients_it_may_do_in_later_calls() -> None:
    case = Case(WRITES_BEFORE_GRADIENTS, {"x0": Y[0, :2], "x1": X[0, :2]}, "test", "g", "float32", variant="default")
    for index in (0, 1):
        verdict = run_case(case.replace(index=index), Fake(lambda fn, args: fn))
        assert verdict.outcome is Outcome.PASS, verdict
        assert MEMORY in verdict.evidence[CALLS]


def test_inputs_that_share_memory_share_it_in_later_calls() -> None:
    base = torch.arange(8.0)
    program = Program(
        ("x0", "x1"),
        (Call("torch.Tensor.mul_", (Ref("x0"), 2), {}, "r0"), Call("torch.add", (Ref("x1"), 1), {}, "r1")),
        Ref("r1"),
    )
    case = Case(program, {"x0": base[:6], "x1": base[2:]}, "test", "shared", "float32", variant="default")
    for index in (0, 1):
        verdict = run_case(case.replace(index=index), Fake(lambda fn, args: fn))
        assert verdict.outcome is Outcome.PASS
        assert verdict.evidence[CALLS] == [VALUES, MEMORY, *[PROGRAM][:index]], "strides would part them"


WINDOWS = torch.arange(6.0).as_strided((4, 3), (1, 1))
ODD: dict[str, Case] = {
    "elements that overlap": case_of("torch.exp", inputs={"x0": WINDOWS}),
    "no input": case_of("torch.zeros", 2, inputs={}),
    "an input that is made larger": case_of("torch.Tensor.resize_", Ref("x0"), (5, 5), inputs={"x0": X}),
    "lazy bits": case_of("torch.mul", inputs={"x0": torch.randn(3, 2, dtype=torch.complex64).conj(), "x1": X[:, :2]}),
    "one row in memory": case_of("torch.exp", inputs={"x0": X[:1].expand(3, 4)}),
    "eight bits": case_of("torch.Tensor.float", inputs={"x0": X.to(torch.float8_e5m2)}),
    "unsigned": case_of("torch.add", inputs={"x0": torch.arange(6).to(torch.uint16), "x1": torch.arange(6) % 2}),
    "not finite": case_of("torch.exp", inputs={"x0": torch.tensor([1.0, float("nan"), float("inf"), 2.0])}),
    "NaN alone": case_of("torch.exp", inputs={"x0": torch.full((3,), float("nan"))}),
    "nothing": case_of("torch.exp", inputs={"x0": torch.empty(0, 3)}),
    "no results": case_of("torch.unbind", inputs={"x0": torch.empty(0, 3)}),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("index", [0, 1])
def test_inputs_of_every_kind_are_called_later(name: str, index: int) -> None:
    verdict = run_case(ODD[name].replace(index=index, variant="default"), Fake(lambda fn, args: fn))
    assert verdict.outcome in (Outcome.PASS, Outcome.UNTESTED), verdict
    free = verdict.outcome is Outcome.UNTESTED or "unwritten" in verdict.evidence  # other values alone
    assert free or MEMORY in verdict.evidence[CALLS]


SQUARE = torch.tensor([[4.0, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 5]])
KEPT: dict[str, tuple[Tensor, Callable[[Tensor], Any]]] = {
    "sorted": (torch.tensor([0.0, 1, 3, 7]), lambda t: (t.diff() > 0).all()),
    "sorted integers": (torch.tensor([0, 2, 4, 9]), lambda t: (t.diff() >= 0).all() and t[0] >= 0 and t[-1] <= 9),
    "indices": (torch.tensor([3, 0, 2, 1]), lambda t: sorted(t.tolist()) == [0, 1, 2, 3]),
    "symmetric": (SQUARE, lambda t: (t == t.mT).all() and (torch.linalg.eigvalsh(t) > 0).all()),
    "lower": (SQUARE.tril(), lambda t: (t == t.tril()).all()),
    "probabilities": (torch.tensor([0.1, 0.9, 0.5]), lambda t: (t >= 0.1).all() and (t <= 0.9).all()),
}


@pytest.mark.parametrize("name", KEPT)
def test_other_values_keep_what_the_first_ones_have(name: str) -> None:
    first, kept = KEPT[name]
    case = case_of("torch.mul", Ref("x0"), 2, inputs={"x0": first})
    found = other_values(case, _eager(case))
    assert found is not None
    (changed,) = found[0].args
    assert not torch.equal(changed, first) and kept(changed)


def test_a_result_that_no_value_decides_has_no_call_with_others() -> None:
    verdict = run_case(case_of("torch.zeros_like", inputs={"x0": X}), Fake(lambda fn, args: fn))
    assert verdict.outcome is Outcome.PASS and verdict.evidence[CALLS][0] == MEMORY


def test_what_eager_does_not_define_is_not_called() -> None:
    """Bags whose last offset is not the number of indices: eager does not look."""
    x = torch.tensor([0, 2, 4])
    inputs = {"x0": torch.tensor([0, 1, 1, 0]), "x1": torch.randn(3, 2), "x2": x}
    case = case_of(
        "torch.nn.functional.embedding_bag", Ref("x0"), Ref("x1"), Ref("x2"), inputs=inputs, include_last_offset=True
    )
    found = other_values(case, _eager(case))
    assert found is not None and int(found[0].args[2][-1]) == 4


def test_what_was_found_right_is_not_judged_again_and_what_is_wrong_beside_it_is() -> None:
    infinite = torch.tensor([1.0, float("inf"), -1.0])
    calls = (Call("torch.sin", (Ref("x0"),), {}, "r0"), Call("torch.exp", (Ref("x1"),), {}, "r1"))
    case = Case(
        Program(("x0", "x1"), calls, (Ref("r0"), Ref("r1"))), {"x0": X, "x1": infinite}, "test", "sin", "float32"
    )
    found = other_values(case, _eager(case))
    assert found is not None and torch.equal(found[0].args[1], infinite) and not torch.equal(found[0].args[0], X)

    def baked(fn: Run, args: tuple[Tensor, ...]) -> Run:
        kept = fn(*args)[0].clone()
        return lambda *tensors: (kept.clone(), fn(*tensors)[1])

    verdict = run_case(case, Fake(baked))
    assert (verdict.outcome, verdict.kind) == (Outcome.MISMATCH, "later-call") and "output[0]" in verdict.message


def test_a_choice_that_was_right_is_judged_again_beside_what_follows_from_it() -> None:
    """The order of equal elements is the same in both calls; what is taken in that order has other values."""
    calls = (
        Call("torch.argsort", (Ref("x0"),), {}, "r0"),
        Call("torch.take_along_dim", (Ref("x1"), Ref("r0"), 1), {}, "r1"),
    )
    case = Case(
        Program(("x0", "x1"), calls, (Ref("r0"), Ref("r1"))), {"x0": torch.ones(3, 4), "x1": X}, "t", "sort", "float32"
    )
    found = other_values(case, _eager(case))
    assert found is not None and len(found[0].args[0].unique()) == 1 and not torch.equal(found[0].args[1], X)

    def other_order(fn: Run, args: tuple[Tensor, ...]) -> Run:
        order = torch.arange(3, -1, -1).repeat(3, 1)
        return lambda x0, x1: (order.clone(), torch.take_along_dim(x1, order, 1))

    verdict = run_case(case, Fake(other_order))
    assert verdict.outcome is Outcome.PASS and VALUES in verdict.evidence[CALLS]

    def off_by_one(fn: Run, args: tuple[Tensor, ...]) -> Run:
        right = other_order(fn, args)

        def run(x0: Tensor, x1: Tensor) -> Any:
            order, taken = right(x0, x1)
            return order, taken if torch.equal(x1, X) else taken + 1

        return run

    verdict = run_case(case, Fake(off_by_one))
    assert (verdict.outcome, verdict.kind) == (Outcome.MISMATCH, "later-call")
