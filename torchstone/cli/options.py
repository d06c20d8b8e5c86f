"""Options that several commands share, and the checks of their values that need nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from torchstone.cli.paths import path_option
from torchstone.conformance.custom import registration

# The dtypes a case may have, by their torch names: checked before torch is imported, held equal to torch's by a test.
DTYPES = (
    "float32", "float64", "float16", "bfloat16", "complex64", "complex128", "complex32",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip


def _check_store(path: Path, option: str, **use: bool) -> None:
    from torchstone.conformance.store import check_store

    check_store(path, **use)


_STORE = "Result store [default: .torchstone/results.sqlite, or $TORCHSTONE_STORE]."
StoreOption = Annotated[Path | None, path_option(_check_store, "--store", help=_STORE)]
ChangedStoreOption = Annotated[Path | None, path_option(partial(_check_store, write=True), "--store", help=_STORE)]
NewStoreOption = Annotated[
    Path | None, path_option(partial(_check_store, write=True, create=True), "--store", help=_STORE)
]

CpuLevelOption = Annotated[
    str | None,
    typer.Option(
        "--cpu-level",
        metavar="LEVEL",
        help="Hold the machine code of linalg, tosa and stablehlo to x86-64-v2, x86-64-v3 or x86-64-v4 [default: "
        "native, what the processor has, or $TORCHSTONE_CPU_LEVEL].",
    ),
]


OpsFromOption = Annotated[
    list[str] | None,
    typer.Option(
        "--ops-from",
        metavar="MODULE",
        help="Import this module, which defines ops of your own, here and in the workers; module:function for a Python "
        "function of it. Repeatable.",
    ),
]

TimeoutOption = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds a backend may take for a case.")]


def set_cpu_level(wanted: str | None) -> str:
    """Hold the CPU runtime of this process, and of those it starts, to a level; return it.

    None is what the environment says. Raises UnknownName, and InputError for what the processor has not.
    """
    import os

    from torchstone.compiler.runtime.cpu.level import LEVELS, NATIVE, VARIABLE, unavailable
    from torchstone.conformance.errors import InputError

    here = os.environ.get(VARIABLE) or NATIVE
    wanted = wanted or here
    check_known("level of x86-64", [wanted], LEVELS)
    if problem := unavailable(wanted):
        raise InputError(problem)
    if wanted != here:
        os.environ[VARIABLE] = wanted
    return wanted


def load_ops(wanted: Sequence[str] | None) -> None:
    """Import the modules of ``--ops-from``. Raises InputError."""
    registration.load_modules(wanted or ())


def parse_dtypes(wanted: Sequence[str]) -> list[str] | None:
    """Return the dtypes to run, None for all. Raises UnknownName."""
    from torchstone.conformance.errors import UnknownName

    if "all" in wanted:
        return None
    for name in wanted:
        if name not in DTYPES:
            raise UnknownName("dtype", name, [*DTYPES, "all"])
    return list(dict.fromkeys(wanted))


def check_known(kind: str, wanted: Sequence[str], known: Iterable[str], *, more: str = "") -> None:
    """Raise UnknownName for the first of ``wanted`` that is not ``known``."""
    from torchstone.conformance.errors import UnknownName

    names = list(known)
    for name in wanted:
        if name not in names:
            raise UnknownName(kind, name, names, more=more)


_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)([hms])")


def parse_duration(text: str) -> float:
    """Return the seconds a text like ``90``, ``60s``, ``10m`` or ``1h30m`` stands for. Raises InputError."""
    from torchstone.conformance.errors import InputError

    wanted = text.strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", wanted):
        total = float(wanted)
    elif re.fullmatch(rf"(?:{_PART.pattern})+", wanted):
        total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(wanted))
    else:
        raise InputError(f'bad time "{text}": give a number and a unit, like 60s, 10m or 1h30m')
    if not total > 0:
        raise InputError(f'bad time "{text}": it must be more than zero')
    return total
