"""What tests of the harness share. The modules in ``helpers`` are importable by name, as workers import them."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "helpers"))


@pytest.fixture
def no_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants ask eager in this process, as a run does before anything has died of it: forks of it take long."""
    from torchstone.conformance.variants.attempts import attempts

    monkeypatch.setattr(attempts, "expendable", True)
