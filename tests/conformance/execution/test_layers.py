"""A verdict on a wrong result tells what the compiler's layers give."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from torchstone.conformance.backends.exporting import Layer
from torchstone.conformance.backends.protocol import Availability, BackendUnsupported
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import find_case


def right(fn: Any, args: Any) -> Any:
    return fn


def wrong(fn: Any, args: Any) -> Any:
    return lambda *tensors: fn(*tensors) + 1


def integers(fn: Any, args: Any) -> Any:
    return lambda *tensors: fn(*tensors).long()


def declines(fn: Any, args: Any) -> Any:
    raise BackendUnsupported("no such op")


def dies(fn: Any, args: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


class Layered:
    """A compiler that gives one more, with a layer that is asked and one that is not cheap."""

    name = "layered"

    def __init__(self, compile: Any, layer: Any) -> None:
        self.compile, self._layer = compile, layer

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {}

    def layers(self) -> list[Layer]:
        return [Layer("model", "the model, by an evaluator", self._layer, cheap=True), Layer("slow", "it", wrong)]


@pytest.fixture(scope="module")
def case() -> Case:
    return find_case("opinfo:neg:float32:0")


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (right, "is right"),
        (wrong, "gives the same failure: output"),
        (integers, "fails otherwise"),
        (declines, "cannot tell: no such op"),
        (dies, "the process was killed by SIGKILL"),
    ],
)
def test_a_wrong_result_is_told_with_what_the_layer_gives(case: Case, layer: Any, words: str) -> None:
    verdict = run_case(case, Layered(wrong, layer))
    assert verdict.outcome is Outcome.MISMATCH
    (told,) = verdict.evidence["layers"].items()
    assert told[0] == "model" and told[1].startswith(f"the model, by an evaluator: {words}")


def test_of_a_right_result_nobody_is_asked(case: Case) -> None:
    assert "layers" not in run_case(case, Layered(right, dies)).evidence
