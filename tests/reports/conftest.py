"""A small store whose every count is known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.store import Store

HOSTILE = (
    "</script><script>alert(1)</script> `x` | <b>bold</b> [a](javascript:alert(1))\n```\n# title\n\x00 &lt; 'q' \"q\""
)


def verdict(backend: str, case: str, outcome: str, stage: str = "compare", **more: Any) -> Verdict:
    """Return a verdict of the case ``op:dtype:index``."""
    op, dtype, _ = case.split(":")
    fields = {"source": "opinfo", "variant": "default", "seconds": 0.5} | more
    return Verdict(
        f"opinfo:{case}", backend, op=op, dtype=dtype, stage=Stage(stage), outcome=Outcome(outcome), **fields
    )


FIRST = [
    verdict("eager", "add:float32:0", "pass"),
    verdict("eager", "add:float32:1", "pass"),
    verdict("eager", "mul:float32:0", "pass"),
    verdict("eager", "mul:bool:0", "pass", evidence={"ran": {"eager": ["torch.mul"]}}),
    verdict("eager", "fft:float32:0", "pass"),
    verdict("eager", "fft:float32:1", "pass"),
    verdict("eager", "svd:float32:0", "untested", "capture", message="a generator cannot be expressed"),
    verdict("linalg", "add:float32:0", "pass"),
    verdict("linalg", "add:float32:1", "pass", evidence={"unproven": "the backend does not tell what ran"}),
    verdict("linalg", "mul:float32:0", "mismatch", kind="value", message="got 1.5, eager 2.5 at [0, 1]",
            evidence={"got": float("nan"), "eager": 2.5}),
    verdict("linalg", "mul:bool:0", "crash", "run", message=HOSTILE),
    verdict("linalg", "fft:float32:0", "unsupported", "lower", message="aten._fft_r2c.default"),
    verdict("linalg", "fft:float32:1", "unsupported", "capture", message="aten.complex.default\nmore"),
    verdict("linalg", "svd:float32:0", "untested", "capture", message="a generator cannot be expressed"),
    verdict("tosa", "add:float32:0", "pass"),
    verdict("tosa", "add:float32:1", "unsupported", "lower", message="aten.add.Scalar"),
    verdict("tosa", "mul:float32:0", "pass", evidence={"rule": "float64", "eager_further": {"count": 1}}),
    verdict("tosa", "mul:bool:0", "crash", "run", message="signal SIGSEGV"),
    verdict("tosa", "fft:float32:0", "unsupported", "lower", message="aten._fft_r2c.default"),
    verdict("tosa", "fft:float32:1", "unsupported", "lower", message="aten._fft_r2c.default"),
    verdict("tosa", "svd:float32:0", "untested", "capture", message="a generator cannot be expressed"),
]  # fmt: skip
SECOND = [
    verdict("linalg", "add:float32:0", "error", "compile", message="boom"),
    verdict("linalg", "add:float32:1", "pass"),
    verdict("linalg", "mul:float32:0", "pass"),
    verdict("linalg", "mul:bool:0", "mismatch", kind="value", message="got 1"),
    verdict("linalg", "fft:float32:0", "pass"),
    verdict("linalg", "fft:float32:1", "unsupported", "lower", message="aten.complex.default"),
    verdict("linalg", "new:float32:0", "error", "run", message="boom"),
]


def fill(store: Store, verdicts: list[Verdict], device: str = "cpu") -> str:
    """Write one finished run and return its id."""
    run = store.new_run("torchstone run --backend <x>", {"jobs": 2}, {"torch": "2.13.0"}, device=device, seed=7)
    for one in verdicts:
        store.record(run, one)
    store.finish(run)
    return run


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """Return the path of a store with the run r1."""
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        fill(store, FIRST)
    return path


@pytest.fixture
def make_store(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes each list of verdicts it is given as one run."""

    def make(*runs: list[Verdict]) -> Path:
        path = tmp_path / "made.sqlite"
        with Store(path) as store:
            for verdicts in runs:
                fill(store, verdicts)
        return path

    return make
