"""Generated programs with Python state: every call is right or refused, and compiling leaves no trace."""

import pytest

from tests.compiler.state.programs import draw
from tests.compiler.state.trial import try_program

TARGETS = ("evaluator", "linalg", "tosa", "tensorrt")


@pytest.mark.parametrize("target", TARGETS)
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


def test_a_trial_tells_a_silent_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial can fail: without the effects of a program, and with what a call finds left unchecked."""
    from torchstone.compiler.frontends.state import checks, effects, heap

    def wrong(count: int) -> int:
        found = [try_program(draw(seed), "evaluator") for seed in range(count)]
        return sum(bool(f.wrong) for f in found), sum(bool(f.trace) for f in found)

    with monkeypatch.context() as patched:
        patched.setattr("torchstone.compiler.frontends.captured.replay", lambda *_: None)
        assert wrong(20)[0]
    with monkeypatch.context() as patched:
        patched.setattr(checks.State, "_check", lambda *_: None)
        assert wrong(40)[0]
    with monkeypatch.context() as patched:
        patched.setattr(heap.Heap, "restore", lambda _: None)
        assert wrong(20)[1]
    assert effects.replay is not None
