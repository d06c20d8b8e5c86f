"""A case as a standalone Python script: imports torch and, for a backend, what runs it; nothing of the harness's data.

Inputs are written as literals when they are small, as compressed bytes otherwise; either way the script's tensors are
the case's bit for bit, strides, offsets and aliasing included.
"""

from __future__ import annotations

import itertools
import re
import textwrap

import torch

from torchstone.conformance.custom.registration import OPS_FROM
from torchstone.conformance.escape import docstring, visible
from torchstone.conformance.execution.later_calls import LaterCall
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.execution.verdict import FAILURES, Kind, Outcome, Verdict
from torchstone.conformance.oracle.tolerances import TABLE, tolerance
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.fx import around_gradients
from torchstone.conformance.program.program import Program
from torchstone.conformance.repro import later_calls, source
from torchstone.conformance.repro.check import HEAD, Check, Results, check
from torchstone.conformance.repro.compilers import Compiler, find_compiler, writes
from torchstone.conformance.repro.source import python_source
from torchstone.conformance.repro.standalone import calls_differ, kills_process, repeat_calls, subprocess_guard

MESSAGE_LINES = 12
STORAGE = re.compile("s[0-9]+")  # what inputs() calls a storage that inputs share
RESERVED = frozenset(["torch", "forward", "base64", "zlib", "bytearray", "float", "complex", "slice", "getattr"])
"""What the bodies of ``program`` and ``inputs`` mean by these names is Python's, or an import of the script's."""


def render_script(case: Case, backend: str | None = None, verdict: Verdict | None = None) -> str:
    """The script's text. With a backend it compares what the backend gives with eager's.

    ``verdict`` is the case's verdict there: the script looks at what it names, as it did (``check``), has it in its
    docstring, and survives a compiler that dies. Without one the results are compared whole, to the oracle's ULPs.
    """
    case = _renamed(case)
    later = later_calls.calls_to_failure(case, verdict) if backend is not None else []
    compiler = None if backend is None else find_compiler(backend, case, verdict)
    lines = _program(case, compiler)
    lines += source.function("inputs", (), source.inputs(case)) + later_calls.functions(later)
    if compiler is not None:
        lines += compiler.definitions(later)
    lines += subprocess_guard() if kills_process(verdict) else []
    lines.append(f"torch.manual_seed({SEED})")
    lines += ["expected = program(*inputs())", 'print("eager:", expected)'] if compiler is None else []
    lines += [] if compiler is None else _main(case, compiler, verdict, later)
    imports = [*_imports(lines, compiler), *_modules(case)]
    return "\n".join([*_title(case, backend, verdict), "", *imports, "", "", *lines]) + "\n"


def _program(case: Case, compiler: Compiler | None) -> list[str]:
    """The function ``program``, and ``forward`` where that is the part of it that is compiled."""
    parts = around_gradients(case.program) if compiler is not None and compiler.trains else None
    if parts is None:
        return source.function("program", case.program.inputs, source.body(case.program))
    leaves, forward, rest = parts
    names = [ref.name for ref in forward.outputs]
    results = f"{', '.join(names)}{',' * (len(names) == 1)} = " if names else ""
    called = f"{results}forward({', '.join(forward.inputs)})"
    body = [*source.body(leaves)[:-1], called, *source.body(rest)]
    return [
        *source.function("forward", forward.inputs, source.body(forward)),
        *source.function("program", (*case.program.inputs, "forward=forward"), body),
    ]


def _renamed(case: Case) -> Case:
    """The case with other names for what would hide a name of the script's own."""
    program = _plain(case.program)
    return case.replace(program=program, inputs=dict(zip(program.inputs, case.inputs.values(), strict=True)))


def _plain(program: Program) -> Program:
    """The program, and those in it, with such names."""
    taken = {*program.inputs, *(call.result for call in program.calls)}
    names: dict[str, str] = {}
    for name in [*program.inputs, *(call.result for call in program.calls)]:
        if name in RESERVED or (name in program.inputs and STORAGE.fullmatch(name)):
            names[name] = next(new for new in (f"{name}{'_' * n}" for n in itertools.count(1)) if new not in taken)
            taken.add(names[name])

    def inside(leaf: object) -> object:
        return _plain(leaf) if isinstance(leaf, Program) else leaf

    return program.rewrite(lambda call: call.map_arguments(inside)).rename(names)


def _title(case: Case, backend: str | None, verdict: Verdict | None) -> list[str]:
    head = case.id + (f" on {backend}" if backend else "")
    if verdict is None or verdict.outcome is Outcome.PASS:
        return docstring([head])
    summary = f"{verdict.outcome} at {verdict.stage}: {verdict.message}"
    lines = [line.rstrip() for part in summary.splitlines() for line in textwrap.wrap(visible(part), 118) or [""]]
    return docstring([head, "", *lines[:MESSAGE_LINES]])


def _imports(lines: list[str], compiler: Compiler | None) -> list[str]:
    """The imports that the statements need."""
    text = "\n".join(lines)
    standard = [
        name
        for name in ("base64", "ctypes", "functools", "os", "pathlib", "subprocess", "sys", "zlib")
        if f"{name}." in text
    ]
    found = [f"import {name}" for name in standard]
    found += ["from collections.abc import Callable"] if "-> Callable" in text else []
    found += ["", "import torch"] if found else ["import torch"]
    found += ["from torch.utils._pytree import tree_leaves"] if "tree_leaves(" in text else []
    return found + (["", *compiler.imports] if compiler is not None and compiler.imports else [])


def _modules(case: Case) -> list[str]:
    """The imports of the modules that define the case's ops."""
    specs = [tag.removeprefix(OPS_FROM) for tag in case.tags if tag.startswith(OPS_FROM)]
    names = dict.fromkeys(spec.partition(":")[0] for spec in specs)
    used = [name for name in names if all(part.isidentifier() for part in name.split("."))]
    return ["", *(f"import {name}  # noqa: F401, which defines ops" for name in used)] if used else []


def _main(case: Case, compiler: Compiler, verdict: Verdict | None, later: list[LaterCall]) -> list[str]:
    """Statements that run the program in both ways and compare."""
    seed = f"torch.manual_seed({SEED})"
    results = Results.of(later[-1].case if later else case, flat=compiler.flat, writes=compiler.flat and writes(case))
    raises = verdict is not None and verdict.outcome in FAILURES and verdict.outcome is not Outcome.MISMATCH
    found = Check([], ['print("no error:", got)']) if raises else check(verdict, results)
    if found is None:
        found = _whole(case, compiler, verdict)
    inputs_too = any("given" in line or "expected_inputs" in line for line in found.wrong)
    compiled = f"compiled = {compiler.compile()}"
    if later:
        eager, checked = compiler.eager("expected_inputs"), [*found.wrong, *found.right]
        return [compiled, *later_calls.statements(later, eager, checked, compiler.run_other())]
    once = not calls_differ(verdict) and not any("compiled" in line for line in found.wrong)
    called = compiler.compile() if once and verdict is not None else "compiled"
    if compiler.lowers_only:
        return [f"got = {called}", *found.right]
    call = ["given = inputs()", f"got = {called}(*given)"] if inputs_too else [f"got = {called}(*inputs())"]
    before = [] if called != "compiled" else [compiled]
    again = [seed] if results is None or results.draws else []
    if raises:
        return [*before, *again, *call, *found.right]
    if verdict is not None and verdict.kind == Kind.ACCEPTED:
        return _accepted([*before, *call])
    eager = ["expected_inputs = inputs()"] if inputs_too else []
    eager += compiler.eager("expected_inputs" if inputs_too else "inputs()")
    return [*eager, *before, *repeat_calls([*again, *call, *found.wrong], verdict), *found.right]


def _accepted(statements: list[str]) -> list[str]:
    """Statements for inputs that eager refuses."""
    return [
        "try:",
        *(f"    {line}" for line in statements),
        "except Exception as error:",
        '    print("right: it refuses them, as eager does:", error)',
        "else:",
        f'    raise SystemExit(f"{HEAD} {Kind.ACCEPTED}: gives {{got}} for inputs that eager refuses")',
    ]


def _whole(case: Case, compiler: Compiler, verdict: Verdict | None) -> Check:
    """A comparison of all results, to the ULPs of the least precise floating dtype among the inputs."""
    rtol, atol = _closeness(case)
    one, other = ("got", "expected") if compiler.flat else ("(got, given)", "(expected, expected_inputs)")
    shown = (
        []
        if calls_differ(verdict)
        else ['print("eager:", expected)', f"print({python_source(f'{compiler.name}:')}, got)"]
    )
    compared = f"torch.testing.assert_close({one}, {other}, rtol={rtol!r}, atol={atol!r}, equal_nan=True)"
    return Check([*shown, compared])


def _closeness(case: Case) -> tuple[float, float]:
    """The oracle's ULPs as a relative tolerance."""
    floating = [t.dtype for t in case.args if t.dtype.is_floating_point or t.dtype.is_complex]
    coarsest = max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
    row = tolerance(coarsest, [call.target for call in case.program.every_call]) if floating else TABLE[torch.float32]
    return row.ulps * torch.finfo(coarsest).eps, row.tiny
