"""What came of the steps, with the machine that they ran on: ``results.json``, and a table."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("torchstone", "torch", "triton", "tensorrt", "torch-mlir", "numpy")


@dataclass
class Result:
    """``state``: passed, failures, part (its time was up), died, or skipped; ``reason`` of the last three."""

    name: str
    state: str
    reason: str = ""
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[dict[str, str]] = field(default_factory=list)

    @property
    def well(self) -> bool:
        return self.state in ("passed", "skipped") or (self.state == "part" and not self.failures)

    def line(self) -> str:
        counts = ", ".join(f"{outcome} {count}" for outcome, count in self.counts.items())
        return f"{self.name:10} {self.state:9} {self.seconds:6.0f} s  {'; '.join(filter(None, (counts, self.reason)))}"


def machine() -> dict[str, Any]:
    """The versions and the devices: a result of a GPU is of no use without them."""
    import torch

    found: dict[str, Any] = {"python": platform.python_version(), "platform": platform.platform()}
    found |= {"processors": len(os.sched_getaffinity(0)), "cuda": torch.version.cuda, "gpus": []}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        device = torch.cuda.get_device_properties(index)
        memory = round(device.total_memory / 2**30, 1)
        found["gpus"].append({"name": device.name, "capability": f"{device.major}.{device.minor}", "GiB": memory})
    return found


def report(results: Sequence[Result], out: Path) -> str:
    """Write the file; return the table of it."""
    here = machine()
    told = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "machine": here}
    file = out / "results.json"
    new = file.with_suffix(".new")
    new.write_text(json.dumps(told | {"steps": [asdict(result) for result in results]}, indent=1) + "\n")
    new.replace(file)
    gpus = ", ".join(gpu["name"] for gpu in here["gpus"]) or "no GPU"
    head = f"{gpus}; PyTorch {here['torch']}, CUDA {here['cuda']}, TensorRT {here['tensorrt'] or 'not installed'}"
    skipped = sum(result.state == "skipped" for result in results)
    end = f"{len(results) - skipped} steps ran, {skipped} did not; all of it is in {file}"
    return "\n".join([head, "", *(result.line() for result in results), "", end])
