"""What a worker leaves in shared bytes of the call that it is making."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from torchstone.conformance.backends import load
from torchstone.conformance.backends.protocol import BackendUnsupported
from torchstone.conformance.execution import current_call
from torchstone.conformance.execution.verdict import Stage
from torchstone.conformance.runner.progress_mark import TEXT, ProgressMark, create_mark, read_progress
from torchstone.conformance.runner.sandbox import Sandbox


@pytest.fixture
def mark() -> Iterator[int]:
    descriptor = create_mark()
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def no_listeners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(current_call, "_listener", [])


def test_the_call_is_read_as_it_was_told_up_to_the_next_case(mark: int) -> None:
    assert read_progress(mark).call == {}
    own = ProgressMark(mark)
    own.tell_call({"part": 0, "sizes": [[4, 2], []]})
    assert read_progress(mark).call == {"part": 0, "sizes": [[4, 2], []]}
    own.begin()
    assert read_progress(mark).call == {}


@pytest.mark.usefixtures("no_listeners")
def test_a_backend_that_raised_has_answered(mark: int) -> None:
    """A refusal is followed by runs of eager, for the parts of the program: their time is not the backend's."""

    class Refuses(type(load("eager"))):  # type: ignore[misc]
        def compile(self, fn: object, args: object) -> object:
            assert read_progress(mark).stage is Stage.COMPILE
            raise BackendUnsupported("no such op")

    sandbox = Sandbox(Refuses(), mark)
    with pytest.raises(BackendUnsupported):
        sandbox.compile(None, ())  # type: ignore[arg-type]
    assert read_progress(mark).stage is Stage.COMPARE


def test_what_has_no_room_or_was_written_over_is_not_read(mark: int) -> None:
    own = ProgressMark(mark)
    own.tell_call({"part": 1})
    own.tell_call({"sizes": [[7] * 10_000]})
    assert read_progress(mark).call == {}
    for text in (b"\xff\xff", b"[1]", b"{{"):
        own.tell_call({"part": 1})
        os.pwrite(mark, text.ljust(len(b'{"part": 1}')), TEXT)
        assert read_progress(mark).call == {}


@pytest.mark.usefixtures("no_listeners")
def test_facts_hold_within_their_block_beside_those_around_it() -> None:
    told: list[dict[str, int]] = []
    current_call.listen(lambda facts: told.append(dict(facts)))
    with pytest.raises(ValueError, match="ended"), current_call.telling({"part": 1}):
        with current_call.telling({"call": 2}):
            pass
        raise ValueError("ended")
    assert told == [{"part": 1}, {"part": 1, "call": 2}, {"part": 1}, {}]
