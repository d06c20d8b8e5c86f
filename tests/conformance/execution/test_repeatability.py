"""Second calls and shared memory: stale buffers, aliases, mutation, garbage, indecision are caught; views are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.conformance.execution.test_run_case import Fake, case_of, outcome, running
from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.execution.memory import find_stray_writes, overlapping_pairs, overwrite
from torchstone.conformance.execution.poison import FILL, OTHER_FILL, poisoned_memory
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.program.tensor_storage import copy_tensors

X = torch.linspace(-2, 2, 6)
RELU = case_of("torch.relu", inputs={"x0": X})
TWICE = Case(
    Program(
        ("x0",),
        (Call("torch.neg", (Ref("x0"),), {}, "r0"), Call("torch.neg", (Ref("x0"),), {}, "r1")),
        [Ref("r0"), Ref("r1")],
    ),
    {"x0": X},
    "test",
    "neg",
    "float32",
)  # fmt: skip


def with_buffer(compute: Callable[..., Tensor]) -> Fake:
    """A backend whose results all lie in one buffer."""
    buffer: list[Tensor] = []

    def run(*tensors: Tensor) -> Tensor:
        out = compute(*tensors)
        if not buffer:
            buffer.append(torch.empty_like(out))
        return buffer[0].copy_(out)

    return running(run)


def constant() -> Fake:
    kept = torch.zeros(6)
    return running(lambda x: kept)


def in_one_allocation(x: Tensor) -> list[Tensor]:
    both = torch.empty(2, len(x))
    return [torch.neg(x, out=both[0]), torch.neg(x, out=both[1])]


GRADIENT = Case(
    Program(
        ("x0", "x1"),
        (
            Call("torch.Tensor.requires_grad_", (Ref("x0"),), {}, "leaf"),
            Call("torch.mul", (Ref("leaf"), 1.0), {}, "y"),
            Call("torch.autograd.grad", ([Ref("y")], [Ref("leaf")], [Ref("x1")]), {}, "gradients"),
        ),
        Ref("gradients", (0,)),
    ),
    {"x0": X.clone(), "x1": X.clone()},
    "test",
    "mul",
    "float32",
)


_AGAIN = Call("torch.autograd.grad", ([Ref("y")], [Ref("leaf")], [Ref("x1")]), {"retain_graph": True}, "again")
GRADIENT_TWICE = GRADIENT.replace(
    program=Program(
        GRADIENT.program.inputs,
        (*GRADIENT.program.calls[:2], _AGAIN, GRADIENT.program.calls[2]),
        (Ref("gradients", (0,)), Ref("again", (0,))),
    )
)


def gradient_is(name: str) -> Fake:
    return running(lambda x0, x1: {"x0": x0.requires_grad_().detach(), "x1": x1}[name])


SHARED: dict[str, tuple[Case, Fake, str]] = {
    "a stale buffer": (RELU, with_buffer(torch.relu), "overwrites what an earlier one returned"),
    "a part of a stale buffer": (
        RELU,
        (lambda buffer: running(lambda x: buffer[2:8].copy_(torch.relu(x))))(torch.empty(9)),
        "overwrites what an earlier one returned",
    ),
    "a constant handed out": (case_of("torch.zeros_like", inputs={"x0": X}), constant(), "changes what later calls"),
    "an input for a copy of it": (case_of("torch.clone", inputs={"x0": X}), running(lambda x: x), "with input[0]"),
    "a view for a result": (
        case_of("torch.add", Ref("x0"), 0, inputs={"x0": X}), running(lambda x: x[:]), "with input[0]"
    ),
    "one result for two": (TWICE, running(lambda x: [(-x)] * 2), "with output[1]"),
    "an input for its gradient": (GRADIENT, gradient_is("x0"), "with input[0]"),
    "one memory for two gradients": (
        GRADIENT_TWICE, running(lambda x0, x1: (x0.requires_grad_(), [x1.clone()] * 2)[1]), "with output[1]"
    ),
    "one place for all elements": (
        case_of("torch.ones_like", inputs={"x0": X}), running(lambda x: torch.ones(1).expand(6)), "lie in one place"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_memory_that_is_not_the_results_own_is_caught(name: str) -> None:
    case, backend, message = SHARED[name]
    verdict = run_case(case, backend)
    assert outcome(verdict) == ("compare", "mismatch", "aliasing"), verdict
    assert message in verdict.message


VIEW = case_of("torch.Tensor.view", Ref("x0"), 3, 2, inputs={"x0": X})
RIGHT: dict[str, tuple[Case, Fake]] = {
    "a copy for a view": (VIEW, running(lambda x: x.reshape(3, 2).clone())),
    "a view as eager": (VIEW, running(lambda x: x.reshape(3, 2))),
    "either, where PyTorch says so": (
        case_of("torch.reshape", Ref("x0"), (3, 2), inputs={"x0": X}), running(lambda x: x.clone().reshape(3, 2))
    ),
    "a cotangent for a gradient": (GRADIENT, gradient_is("x1")),
    "a cotangent for two gradients": (
        GRADIENT_TWICE, running(lambda x0, x1: (x0.requires_grad_(), [x1, x1])[1])
    ),
    "results in one allocation": (TWICE, running(in_one_allocation)),
    "a written input returned as a copy": (
        case_of("torch.Tensor.add_", Ref("x0"), 1, inputs={"x0": X}), running(lambda x: x.add_(1).clone())
    ),
    "an expanded result as eager": (
        case_of("torch.Tensor.expand", Ref("x0"), 2, 6, inputs={"x0": X}), running(lambda x: x.expand(2, 6))
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_memory_that_pytorch_lets_results_have_is_right(name: str) -> None:
    verdict = run_case(*RIGHT[name])
    assert verdict.outcome is Outcome.PASS, verdict


def padded() -> Case:
    return case_of("torch.neg", inputs={"x0": torch.arange(12.0)[1:10:2]})


def writes_beside(x: Tensor) -> Tensor:
    x.as_strided((1,), (1,), 2).fill_(7)
    return -x


def test_padding_around_an_input_is_not_the_backends() -> None:
    verdict = run_case(padded(), running(writes_beside))
    assert outcome(verdict) == ("compare", "mismatch", "mutation")
    assert "around input[0]" in verdict.message
    assert verdict.evidence["byte"] // 4 == 2


@pytest.mark.parametrize(("old", "new"), [(0.0, -0.0), (1.0, 1.0 + 2**-23), (float("nan"), 1.0), (5.0, float("nan"))])
def test_the_smallest_write_to_an_input_is_a_mutation(old: float, new: float) -> None:
    case = case_of("torch.isnan", inputs={"x0": torch.tensor([[3.0, old]])})

    def run(x: Tensor) -> Tensor:
        out = torch.isnan(x)
        x[0, 1] = new
        return out

    assert outcome(run_case(case, running(run))) == ("compare", "mismatch", "mutation")


def test_reads_of_memory_that_nobody_wrote_to_are_caught() -> None:
    def run(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        out[:-1] = torch.relu(x)[:-1]
        return out

    assert outcome(run_case(RELU, running(run)))[1] == "mismatch"


def test_fresh_memory_holds_garbage_of_two_kinds() -> None:
    with poisoned_memory(FILL):
        torch.empty(4096)
        first = torch.empty(4096)
    with poisoned_memory(OTHER_FILL):
        second = torch.empty(4096)
    if not (first < -1e38).all():
        pytest.skip("this C library's allocator does not fill memory")
    assert (second > 1e38).all()


def test_a_third_call_may_be_the_wrong_one() -> None:
    calls = iter([0.0, 2**-22, 1.0, *[0.0] * 9])
    verdict = run_case(RELU, running(lambda x: torch.relu(x) * (1 + next(calls))))
    assert outcome(verdict) == ("compare", "mismatch", "nondeterministic")
    assert verdict.evidence["call"] == 3


def test_bits_that_vary_within_the_tolerance_are_noted() -> None:
    calls = iter([0.0, 2**-23] * 9)
    verdict = run_case(RELU, running(lambda x: torch.relu(x) * (1 + next(calls))))
    assert verdict.outcome is Outcome.PASS
    assert "from one call to the next" in verdict.evidence["varies"]


def test_a_backend_that_fails_when_called_again() -> None:
    calls = iter([0])

    def run(x: Tensor) -> Tensor:
        next(calls)
        return torch.relu(x)

    verdict = run_case(RELU, running(run))
    assert outcome(verdict) == ("run", "error", "")
    assert verdict.message.startswith("called again: StopIteration")


def test_an_answer_kept_from_the_first_call() -> None:
    kept: list[Tensor] = []

    def run(x: Tensor) -> Tensor:
        kept.append(torch.relu(x))
        return kept[0]

    assert outcome(run_case(RELU, running(run))) == ("compare", "mismatch", "aliasing")


DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.complex128, torch.int8, torch.bool]
VALUES = st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.0, float("nan"), float("inf"), float("-inf"), 1e-40])


@st.composite
def views(draw: st.DrawFn) -> Tensor:
    """A view, with gaps or overlaps or neither, of a storage of plain or special numbers; perhaps 0-d or empty."""
    dtype = draw(st.sampled_from(DTYPES))
    count = draw(st.integers(5, 12))
    row = torch.tensor(draw(st.lists(VALUES, min_size=count, max_size=count)), dtype=torch.float64)
    row = row.nan_to_num(posinf=9, neginf=-9) if not (dtype.is_floating_point or dtype.is_complex) else row
    shape = draw(st.sampled_from([(), (0,), (1,), (2,), (2, 2), (2, 1)]))
    stride = tuple(draw(st.integers(0, 2)) for _ in shape)
    span = sum((size - 1) * step for size, step in zip(shape, stride, strict=True) if size)
    offset = draw(st.integers(0, max(0, count - 1 - max(span, 0)))) if span < count else 0
    return row.to(dtype).as_strided(shape, stride, offset)


@settings(max_examples=60, deadline=None)
@given(views(), st.integers(0, 10**6), st.integers(1, 255))
def test_any_changed_byte_of_an_input_is_found(tensor: Tensor, at: int, flip: int) -> None:
    before = (tensor,)
    expected, actual = copy_tensors(before), copy_tensors(before)
    assert find_stray_writes(before, expected, actual, lambda: [False]) == ([True], "", {})
    storage = torch.empty(0, dtype=torch.uint8).set_(actual[0].untyped_storage())
    storage[at % len(storage)] ^= flip
    settled, message, evidence = find_stray_writes(before, expected, actual, lambda: [False])
    assert not settled[0] and message and evidence["byte"] == at % len(storage)
    assert find_stray_writes(before, actual, actual, lambda: [False]) == ([True], "", {})


@settings(max_examples=40, deadline=None)
@given(views())
def test_scribbling_changes_every_element(tensor: Tensor) -> None:
    (copy,) = copy_tensors((tensor,))
    overwrite(copy)
    assert not tensor.numel() or bool((copy != tensor).all())


@settings(max_examples=40, deadline=None)
@given(views())
def test_a_tensor_has_the_bits_of_its_copy_alone(tensor: Tensor) -> None:
    assert same_bits(tensor, tensor.clone()) and same_bits(tensor.clone(), tensor)
    other = tensor.clone()
    if other.numel():
        overwrite(other)
        assert not same_bits(tensor, other) and not same_bits(other, tensor)


@settings(max_examples=40, deadline=None)
@given(views(), views())
def test_separate_tensors_do_not_overlap_and_views_of_one_do(one: Tensor, other: Tensor) -> None:
    assert overlapping_pairs([one], [other]) == []
    assert overlapping_pairs([one], [one[...]]) == ([(0, 0)] if one.numel() else [])


def test_eager_is_right_when_called_again() -> None:
    programs: tuple[Any, ...] = (RELU, TWICE, VIEW, padded())
    assert all(run_case(case, Eager()).outcome is Outcome.PASS for case in programs)


def test_zeros_that_take_no_memory_share_none() -> None:
    """The gradient of a step function; PyTorch refuses to write to it."""
    zeros = torch._efficientzerotensor((3,))
    assert overlapping_pairs([zeros], [zeros, torch.ones(3)]) == []
    x = torch.ones(3)
    assert overlapping_pairs([x], [zeros, x]) == [(0, 1)]
