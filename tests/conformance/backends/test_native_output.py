"""What native code prints is collected on demand, and descriptor 2 is as before."""

from __future__ import annotations

import os

import pytest

from torchstone.conformance.backends.native_output import LIMIT, captured_stderr, stderr_of_failure


def test_only_what_is_printed_inside_is_collected(capfd: pytest.CaptureFixture[str]) -> None:
    os.write(2, b"before\n")
    with captured_stderr() as said:
        os.write(2, b"one\ntwo\n")
    os.write(2, b"after\n")
    assert said == ["one", "two"]
    assert capfd.readouterr().err == "before\nafter\n"


def test_words_of_an_action_that_fails_are_bounded(capfd: pytest.CaptureFixture[str]) -> None:
    def fails(text: bytes) -> None:
        os.write(2, text)
        raise RuntimeError("as it does")

    assert stderr_of_failure(fails, b"why \xff\n") == ["why \N{REPLACEMENT CHARACTER}"]
    assert stderr_of_failure(fails, b"x" * 10 * LIMIT) == ["x" * LIMIT]
    os.write(2, b"restored\n")
    assert capfd.readouterr().err == "restored\n"
