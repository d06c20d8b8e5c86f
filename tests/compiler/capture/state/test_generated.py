"""Generated programs with Python state: every call is right or refused, and compiling leaves no trace."""

from collections.abc import Iterator

import pytest

from tests.compiler.capture.state.programs import draw
from tests.compiler.capture.state.trial import Found, try_program
from tests.sampling import some
from torchstone.compiler.capture.state import checks, heap, kinds

TARGETS = ("evaluator", "linalg", "tosa", "tensorrt")
# PyTorch's word on float(t) where t takes a gradient: once in a process, from eager.
pytestmark = pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")


# State is the capture's, which knows of no target: the long tests ask the others, too, of other programs.
@pytest.mark.torture
@pytest.mark.parametrize("target", some(TARGETS, ("evaluator", "linalg").__contains__))
def test_programs_with_state_are_right_or_refused(target: str) -> None:
    first = 1000 * TARGETS.index(target)
    found = {seed: try_program(draw(seed), target) for seed in range(first, first + 25)}
    assert not {seed: f for seed, f in found.items() if f.wrong or f.trace}
    assert any(f.right == 3 for f in found.values()), "none was called three times"


@pytest.mark.torture
@pytest.mark.parametrize("target", TARGETS)
def test_hundreds_of_programs_with_state_are_right_or_refused(target: str) -> None:
    found = {seed: try_program(draw(seed), target) for seed in range(10_000, 10_500)}
    assert not {seed: f for seed, f in found.items() if f.wrong or f.trace}


def drawn(count: int) -> Iterator[Found]:
    """What trials of so many programs find; who looks for one that is wrong tries no more after it."""
    return (try_program(draw(seed), "evaluator") for seed in range(count))


def test_a_trial_tells_of_effects_that_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchstone.compiler.capture.program.replay", lambda *_: None)
    assert any(found.wrong for found in drawn(20))


def test_a_trial_tells_of_state_that_nobody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.State, "_check", lambda *_: None)
    assert any(found.wrong for found in drawn(40))


def test_a_trial_tells_of_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = heap.Heap.restore

    def forgetful(self: heap.Heap) -> None:
        for node in self.nodes:
            if node.kind in (kinds.DICT, kinds.LIST, kinds.INSTANCE, kinds.CELL):
                node.saved = node.saved | {key: n for key, n in node.entries().items() if type(n) is int}
        restore(self)

    monkeypatch.setattr(heap.Heap, "restore", forgetful)
    assert any(found.trace for found in drawn(40))
