"""A device that refuses a call by an assertion in a kernel, and runs nothing more from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from variant_cases import asked, case

from torchstone.conformance.backends import load
from torchstone.conformance.backends.cuda import OnCuda
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Kind, Outcome
from torchstone.conformance.program.program import Program
from torchstone.conformance.runner import progress_mark
from torchstone.conformance.runner.sandbox import Sandbox
from torchstone.conformance.variants.out_of_bounds import UNASKED

ASSERTED = "CUDA error: device-side assert triggered"


class Device:
    """Eager, on a device that is broken by what eager refuses; or each call from the ``broken_at``th on."""

    name = "eager"

    def __init__(self, answer: Callable[..., Any] | None = None, broken_at: int | None = None) -> None:
        self.answer = answer
        self.broken_at = broken_at
        self.broken = False
        self.calls: list[tuple[Tensor, ...]] = []

    def synchronize(self) -> None:
        if self.broken:
            raise torch.AcceleratorError(f"{ASSERTED}\nSearch for it.")

    def compile(self, fn: Program, args: tuple[Tensor, ...]) -> Callable[..., Any]:
        self.synchronize()

        def run(*tensors: Tensor) -> Any:
            self.synchronize()
            self.calls.append(tensors)
            try:
                if self.broken_at is not None and len(self.calls) >= self.broken_at:
                    raise IndexError
                return (self.answer or fn)(*tensors)
            except Exception:
                self.broken = True
            self.synchronize()

        return run


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Device], Any]:
    """The device as a backend in a worker."""

    def backend(device: Device) -> Any:
        monkeypatch.setattr(OnCuda, "_synchronize", lambda self: device.synchronize())
        return Sandbox(OnCuda(device, "cpu"), progress_mark.create_mark())  # type: ignore[arg-type]

    return backend


TAKING = case("torch.take", torch.randn(5), torch.tensor([1, 2]))
BAGS = torch.tensor([0, 1, 2, 1]), torch.randn(3, 2), torch.tensor([0, 2])
CASES = {"take": TAKING, "embedding_bag": case("torch.nn.functional.embedding_bag", *BAGS)}


@pytest.mark.parametrize("op", CASES)
def test_a_failed_assertion_refuses_a_call_and_what_comes_after_it_is_not_asked(
    op: str, on: Callable[[Device], Any]
) -> None:
    device = Device()
    backend = on(device)
    verdict = run_case(asked(CASES[op], "outside"), backend)
    assert verdict.outcome is Outcome.PASS, verdict
    assert ASSERTED in verdict.evidence["backend"] and ASSERTED in verdict.evidence[UNASKED]
    assert len(device.calls) == 1 and backend.spent(), "the worker ends after the case"


def test_a_device_that_is_out_of_order_before_is_not_asked_at_all(on: Callable[[Device], Any]) -> None:
    backend = on(Device())
    run_case(asked(TAKING, "outside"), backend)
    verdict = run_case(asked(TAKING, "outside"), backend)
    assert (verdict.outcome, ASSERTED in verdict.message) == (Outcome.UNTESTED, True), verdict


def clamped(x: Tensor, index: Tensor) -> Tensor:
    return torch.take(x, index.clamp(-len(x), len(x) - 1))


def test_what_takes_an_index_out_of_range_is_still_wrong(on: Callable[[Device], Any]) -> None:
    def one_end(x: Tensor, index: Tensor) -> Tensor:  # takes the second index that is asked
        return clamped(x, index) if int(index[0]) > 1 else torch.take(x, index)

    for answer in (clamped, lambda x, index: one_end(x, index.flip(0))):
        verdict = run_case(asked(TAKING, "outside"), on(Device(answer)))
        assert (verdict.outcome, verdict.kind) == (Outcome.MISMATCH, Kind.ACCEPTED), verdict


def test_calls_that_are_refused_without_breaking_the_device_are_all_made() -> None:
    made = []

    class Plain:
        name = "plain"

        def compile(self, fn: Program, args: tuple[Tensor, ...]) -> Callable[..., Any]:
            def run(*tensors: Tensor) -> Any:
                made.append(tensors)
                return clamped(*tensors) if len(made) == 2 else fn(*tensors)

            return run

    verdict = run_case(asked(TAKING, "outside"), Plain())
    assert (verdict.outcome, verdict.kind, len(made)) == (Outcome.MISMATCH, Kind.ACCEPTED, 2), verdict


def test_a_device_that_breaks_where_eager_takes_the_call_is_an_error(on: Callable[[Device], Any]) -> None:
    for broken_at in (1, 2):
        verdict = run_case(TAKING, on(Device(broken_at=broken_at)))
        assert (verdict.outcome, ASSERTED in verdict.message) == (Outcome.ERROR, True), verdict
    device = Device()
    device.broken = True
    assert run_case(TAKING, on(device)).outcome is Outcome.ERROR


def test_what_is_amiss_with_the_process_alone_leaves_out_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = Sandbox(load("eager"), progress_mark.create_mark())
    monkeypatch.setattr(Sandbox, "spent", lambda self: "threads were left running")
    verdict = run_case(asked(TAKING, "outside"), backend)  # type: ignore[arg-type]
    assert verdict.outcome is Outcome.PASS and UNASKED not in verdict.evidence
