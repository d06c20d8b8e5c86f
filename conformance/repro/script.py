"""A case as a standalone Python script: imports torch and, for a backend, what runs it; nothing of the harness's data.

Inputs are written as literals when they are small, as compressed bytes otherwise; either way the script's tensors are
the case's bit for bit, strides, offsets and aliasing included.
"""

from __future__ import annotations

import itertools
import re
import textwrap
from typing import Any

import torch

from torchstone.conformance.custom.registration import OPS_FROM
from torchstone.conformance.escape import docstring, visible
from torchstone.conformance.execution.later_calls import LaterCall
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.oracle.tolerances import TABLE, tolerance
from torchstone.conformance.program.case import Case
from torchstone.conformance.repro import later_calls, source, standalone
from torchstone.conformance.repro.source import python_source

MESSAGE_LINES = 12
STORAGE = re.compile("s[0-9]+")  # what inputs() calls a storage that inputs share
RESERVED = frozenset(["torch", "base64", "zlib", "bytearray", "float", "complex", "slice", "getattr"])
"""What the bodies of ``program`` and ``inputs`` mean by these names is Python's, or an import of the script's."""
BUILT_IN = ("linalg", "tosa", "stablehlo", "stablehlo-interpreter", "stablehlo-xla", "tensorrt")


def render_script(case: Case, backend: str | None = None, verdict: Verdict | None = None) -> str:
    """The script's text. With a backend it asserts, to the oracle's ULPs, that both runs agree.

    ``verdict`` is the case's verdict there. The script's docstring has it, and a script for a compiler that dies
    survives it.
    """
    case = _renamed(case)
    later = later_calls.calls_to_failure(case, verdict) if backend is not None else []
    known = backend in (*BUILT_IN, "eager", "inductor")
    path = None if known or backend is None else standalone.compiler_path(backend, verdict)
    lines = source.function("program", case.program.inputs, source.body(case))
    lines += source.function("inputs", (), source.inputs(case)) + later_calls.functions(later)
    packed = any("b64decode" in line for line in lines)
    imports = [*_imports(packed, backend, verdict, path), *_modules(case)]
    lines = [*_title(case, backend, verdict), "", *imports, "", "", *lines]
    if path is not None:
        lines += standalone.definitions(path, case, later)
    lines += standalone.subprocess_guard() if standalone.kills_process(verdict) else []
    lines.append("torch.manual_seed(20)")
    if path is None:
        lines += _main(case, backend, verdict, later)
    else:
        lines += standalone.comparison(path, str(backend), case, verdict, _closeness(case), later)
    return "\n".join(lines) + "\n"


def _renamed(case: Case) -> Case:
    """The case with other names for what would hide a name of the script's own."""
    program = case.program
    taken = {*program.inputs, *(call.result for call in program.calls)}
    names: dict[str, str] = {}
    for name in [*program.inputs, *(call.result for call in program.calls)]:
        if name in RESERVED or (name in program.inputs and STORAGE.fullmatch(name)):
            names[name] = next(new for new in (f"{name}{'_' * n}" for n in itertools.count(1)) if new not in taken)
            taken.add(names[name])
    if not names:
        return case

    inputs = {names.get(name, name): tensor for name, tensor in case.inputs.items()}
    return case.replace(program=program.rename(names), inputs=inputs)


def _title(case: Case, backend: str | None, verdict: Verdict | None) -> list[str]:
    head = case.id + (f" on {backend}" if backend else "")
    if verdict is None or verdict.outcome is Outcome.PASS:
        return docstring([head])
    summary = f"{verdict.outcome} at {verdict.stage}: {verdict.message}"
    lines = [line.rstrip() for part in summary.splitlines() for line in textwrap.wrap(visible(part), 118) or [""]]
    return docstring([head, "", *lines[:MESSAGE_LINES]])


def _imports(packed: bool, backend: str | None, verdict: Verdict | None, path: Any) -> list[str]:
    lines = ["import base64"] if packed else []
    lines += ["import ctypes"] if standalone.calls_differ(verdict) and backend is not None else []
    lines += ["import subprocess", "import sys"] if standalone.kills_process(verdict) else []
    lines += ["import zlib"] if packed else []
    lines += ["from collections.abc import Callable"] if path is not None else []
    lines += ["", "import torch"] if lines else ["import torch"]
    if path is not None:
        lines.append("from torch.utils._pytree import tree_leaves")
    elif backend in BUILT_IN:
        lines += ["", "import torchstone"]
    elif backend not in (None, "eager", "inductor"):
        lines += ["", "from torchstone.conformance.backends import load"]
    return lines


def _modules(case: Case) -> list[str]:
    """The imports of the modules that define the case's ops."""
    specs = [tag.removeprefix(OPS_FROM) for tag in case.tags if tag.startswith(OPS_FROM)]
    names = dict.fromkeys(spec.partition(":")[0] for spec in specs)
    used = [name for name in names if all(part.isidentifier() for part in name.split("."))]
    return ["", *(f"import {name}  # noqa: F401, which defines ops" for name in used)] if used else []


def _main(case: Case, backend: str | None, verdict: Verdict | None, later: list[LaterCall]) -> list[str]:
    if backend is None:
        return ["expected = program(*inputs())", 'print("eager:", expected)']
    rtol, atol = _closeness(case)
    compared = "(actual, given), (expected, expected_inputs)"
    check = [
        "torch.manual_seed(20)",
        "actual = compiled(*given)",
        f"print({python_source(f'{backend}:')}, actual)",
        f"torch.testing.assert_close({compared}, rtol={rtol!r}, atol={atol!r}, equal_nan=True)",
    ]
    eager = ["expected = program(*expected_inputs)", 'print("eager:", expected)']
    compiled = f"compiled = {_compiled(backend, 'program', 'inputs()')}"
    if later:
        other = _compiled(backend, later_calls.ANOTHER, f"{later_calls.ANOTHER}_inputs()")
        run_other = f"{other}(*{later_calls.ANOTHER}_inputs())"
        check = ["torch.manual_seed(20)", *eager, *check]
        return [compiled, "", "", *later_calls.statements(later, check, run_other)]
    return [
        "expected_inputs = inputs()",
        *eager,
        "",
        compiled,
        *standalone.repeat_calls(["given = inputs()", *check], verdict),
    ]


def _compiled(backend: str, program: str, args: str) -> str:
    """An expression for what a backend makes of a program."""
    if backend == "eager":
        return program
    if backend == "inductor":
        return f"torch.compile({program})"
    if backend in BUILT_IN:
        return f"torchstone.compile({program}, {args}, target={python_source(backend)})"
    return f"load({python_source(backend)}).compile({program}, {args})"


def _closeness(case: Case) -> tuple[float, float]:
    """The oracle's ULPs as a relative tolerance, for the least precise floating dtype among the inputs."""
    floating = [t.dtype for t in case.args if t.dtype.is_floating_point or t.dtype.is_complex]
    coarsest = max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
    row = tolerance(coarsest, [call.target for call in case.program.calls]) if floating else TABLE[torch.float32]
    return row.ulps * torch.finfo(coarsest).eps, row.tiny
