"""What mutants are drawn from: the transforms, lowerings and runtimes of the built-in compiler."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import torchstone.compiler
from torchstone.conformance.errors import UnknownName
from torchstone.conformance.mutants.syntactic.enumerate import mutations
from torchstone.conformance.mutants.syntactic.mutation import Mutation

ROOT = Path(torchstone.compiler.__file__).parent
FOLDERS = ("transforms", "lowering", "runtime")

NOT_DRAWN = {
    "transforms/verify.py": "the compiler's check of its own graphs: nothing that it lets through changes a result",
    "lowering/tosa/validate.py": "a check of the compiler's own output, like the one above",
    "runtime/tensorrt/simulator": "a stand-in for NVIDIA's library, and no part of the compiler",
    "transforms/graph_types.py": "serves text that came without sizes, and checks: no case is text",
    "transforms/freeze.py": "serves an option, constants for parameters, of another backend (``linalg+frozen``)",
    "transforms/fold_scales.py": "like the one above",
    "lowering/evaluator.py": "the reference that bisection holds stages against: no backend runs it",
    "runtime/interpreter.py": "like the one above; captured programs take it to read sizes, not to compute",
    "runtime/cpu/allocating_kernel.py": "serves an adapter of another compiler, torch-mlir's",
    "runtime/cpu/returned.py": "like the one above",
    "runtime/stablehlo_interpreter.py": "serves a program that is not ours, which runs what the compiler wrote",
    "runtime/xla.py": "like the one above",
    "runtime/cpu/level.py": "which processors the compiler takes: the machine decides what of it runs",
}
"""Files and folders that are left out, and why."""

TARGETS = {
    "linalg": ("transforms", "lowering/linalg", "lowering/mlir_passes", "lowering", "runtime/cpu", "runtime"),
    "tosa": (
        "lowering/tosa",
        "lowering/checked.py",
        "lowering/mlir_passes/sums.py",
        "lowering/mlir_passes/unfused.py",
        "transforms/channels_last.py",
        "transforms/legalizations",
        "transforms/sink_transposes.py",
    ),
    "stablehlo": ("lowering/stablehlo",),
    "tensorrt": ("lowering/tensorrt", "runtime/tensorrt", "transforms/legalizations/bits.py"),
}
"""The target on which the code of a folder or file is tried. The nearest one decides."""


def sources(target: str = "linalg") -> dict[str, str]:
    """The text of every file that is tried on a target, by its path from the compiler's folder on, in order."""
    if target not in TARGETS:
        raise UnknownName("target", target, TARGETS)
    out = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = file.relative_to(ROOT).as_posix()
            if _target_of(path) == target and not any(_within(path, left_out) for left_out in NOT_DRAWN):
                out[path] = file.read_text(encoding="utf-8")
    return out


def digest() -> str:
    """Changes with every source of the compiler: what was measured of it holds for as long as this stays."""
    found = hashlib.sha256()
    for file in sorted(ROOT.rglob("*.py")):
        found.update(file.relative_to(ROOT).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return found.hexdigest()[:16]


def draw(texts: Mapping[str, str], seed: int) -> Iterator[Mutation]:
    """All mutations of some files in an order that follows from the seed: the first N of them are a draw of N."""
    everything = [mutation for path, text in texts.items() for mutation in mutations(path, text)]
    random.Random(seed).shuffle(everything)
    return iter(everything)


def find(texts: Mapping[str, str], fingerprints: Iterable[str]) -> dict[str, Mutation]:
    """The mutations with these fingerprints, in order; UnknownName for one that there is none of."""
    known = {mutation.fingerprint: mutation for path, text in texts.items() for mutation in mutations(path, text)}
    wanted = list(fingerprints)
    for fingerprint in wanted:
        if fingerprint not in known:
            raise UnknownName("mutant", fingerprint, known)
    return {fingerprint: known[fingerprint] for fingerprint in wanted}


def _target_of(path: str) -> str:
    folders = {folder: target for target, names in TARGETS.items() for folder in names}
    return folders[max((folder for folder in folders if _within(path, folder)), key=len)]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")
