"""The machine that verdicts come from: what decides how eager rounds, sums and chooses kernels on it.

Two right runs of one case may differ where the machines do, and where the settings of their libraries do.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from torchstone.compiler.runtime.cpu import level

WORKER_THREADS = 1
"""How many threads PyTorch has in a worker, whatever the machine has."""

# What MKL's conditional numerical reproducibility is set to, by its number (mkl_types.h).
_BRANCHES = {
    1: "off", 2: "auto", 3: "compatible", 4: "sse2", 5: "sse3", 6: "ssse3", 7: "sse4_1", 8: "sse4_2", 9: "avx",
    10: "avx2", 11: "avx512_mic", 12: "avx512", 13: "avx512_mic_e1", 14: "avx512_e1",
}  # fmt: skip


def machine_facts(root: Path = Path("/")) -> dict[str, str]:
    """Return facts by name: processor, capabilities, libraries and their settings, threads, the code generator."""
    import torch

    config = torch.__config__.show()
    return {
        "architecture": platform.machine(),
        "processor": processor(root),
        "cores": str(os.cpu_count()),
        "aten capability": torch.backends.cpu.get_cpu_capability(),
        "mkl": _found(r"Math Kernel Library Version (\S+)", config),
        "mkl cbwr": mkl_branch(),
        "onednn": _found(r"MKL-DNN v(\S+)", config),
        "onednn isa": os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or "all",
        "threads": str(WORKER_THREADS),
        "code generator": os.environ.get(level.VARIABLE) or level.NATIVE,
    }


def differing_facts(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return what both tell and tell differently: the name, and what each has."""
    shared = [name for name in before if name in after]
    return {name: (before[name], after[name]) for name in shared if before[name] != after[name]}


def processor(root: Path = Path("/")) -> str:
    """Return the vendor and the model, as Linux tells them; what Python knows where it does not."""
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or "unknown"
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    kept = (facts.get(key, "") for key in ("vendor_id", "model name", "cpu family", "model", "stepping"))
    return " ".join(fact for fact in kept if fact) or platform.processor() or "unknown"


def mkl_branch() -> str:
    """Return what MKL itself says that MKL_CBWR has made of it; what was asked for, where it does not tell."""
    import torch

    asked = os.environ.get("MKL_CBWR") or "off"
    try:
        code = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")).mkl_serv_cbwr_get(1)
    except (OSError, AttributeError):
        return asked.lower()
    return _BRANCHES.get(code, str(code))


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    return match[1] if match else "none"
