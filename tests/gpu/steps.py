"""What needs a GPU, in steps: what each runs, and what has to be there for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


def no_device() -> str:
    """Say why PyTorch has no GPU here; nothing if it has one."""
    import torch

    if torch.cuda.is_available():
        return ""
    return "PyTorch finds no CUDA device" if torch.version.cuda else "this build of PyTorch is without CUDA"


def no_tensorrt() -> str:
    """Say why no engines can be built here; nothing if they can."""
    from torchstone.compiler.runtime.tensorrt import api

    found = api()
    return "" if found.real else found.reason


@dataclass(frozen=True)
class Step:
    """``arguments`` are those of ``torchstone``, or of pytest where ``tests`` names files.

    ``share`` is the part of the time that the step may take, beside the others'; ``lacking`` says why it cannot run.
    """

    name: str
    lacking: Callable[[], str]
    share: int
    arguments: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "tests" if self.tests else self.arguments[0]


REAL = {"TORCHSTONE_TENSORRT": "real"}

STEPS = (
    Step("device", no_device, 2, tests=("tests/conformance/backends/test_cuda.py",)),
    Step("engines", no_tensorrt, 2, tests=("tests/gpu/test_engines.py",), environment=REAL),
    Step("eager", no_device, 3, ("run", "--backend", "eager", "--device", "cuda")),
    Step("tensorrt", no_tensorrt, 6, ("run", "--backend", "tensorrt"), environment=REAL),
    Step("inductor", no_device, 6, ("run", "--backend", "inductor", "--device", "cuda")),
    Step("fuzz", no_device, 3, ("fuzz", "--backend", "inductor+cuda", "--seed", "1")),
)
