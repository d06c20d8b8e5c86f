"""A case as a standalone Python script: imports torch and, for a backend, what runs it; nothing of the harness's data.

Inputs are written as literals when they are small, as compressed bytes otherwise; either way the script's tensors are
the case's bit for bit, strides, offsets and aliasing included.
"""

from __future__ import annotations

import itertools
import re
import sys
import textwrap
from dataclasses import dataclass

import torch

from torchstone.conformance.custom.registration import OPS_FROM
from torchstone.conformance.escape import docstring, visible
from torchstone.conformance.execution.later_calls import LaterCall
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.execution.verdict import NO_RESULT, Kind, Outcome, Verdict
from torchstone.conformance.oracle.tolerances import TABLE, tolerance
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Program
from torchstone.conformance.repro import later_calls, source
from torchstone.conformance.repro.check import HEAD, Check, check
from torchstone.conformance.repro.compilers import Compiler, fails_before_run, find_compiler, is_flat
from torchstone.conformance.repro.results import Results
from torchstone.conformance.repro.source import python_source
from torchstone.conformance.repro.standalone import calls_differ, kills_process, repeat_calls, subprocess_guard
from torchstone.conformance.variants.dynamic import asked

MESSAGE_LINES = 12
STORAGE = re.compile("s[0-9]+")  # what inputs() calls a storage that inputs share
RESERVED = frozenset(
    [
        "torch", "forward", "base64", "zlib", "bytearray", "float", "complex", "slice", "getattr", "self", "leaf",
        "arg", "any", "tree_leaves",
    ]
)  # fmt: skip
"""What the bodies of ``program`` and ``inputs`` mean by these names is Python's, or an import of the script's."""


def render_script(case: Case, backend: str | None = None, verdict: Verdict | None = None) -> str:
    """The script's text. With a backend it compares what the backend gives with eager's.

    ``verdict`` is the case's verdict there: the script looks at what it names, as it did (``check``), has it in its
    docstring, and survives a compiler that dies. Without one the results are compared whole, to the oracle's ULPs.
    """
    found = asked(_renamed(case), verdict.evidence if verdict is not None else {})
    case, example = found.called, found.example
    if backend is None:
        lines = [*source.function("program", case.program.inputs, source.body(case.program)), *_inputs(case)]
        lines += [f"torch.manual_seed({SEED})", "expected = program(*inputs())", 'print("eager:", expected)']
        compiler = None
    else:
        later = later_calls.calls_to_failure(case, verdict)
        flat = is_flat(backend)
        results = Results.of(later[-1].case if later else case, flat=flat) or Results.of(example, flat=flat)
        compiler = find_compiler(backend, case, verdict, results, example, found.dims)
        main = _Main(case, example, compiler, verdict, later, results)
        lines = [*compiler.definitions(case, results), *main.lines()]
    imports = [*_imports(lines, compiler), *_modules(case)]
    return "\n".join([*_title(case, backend, verdict), "", *imports, "", "", *lines]) + "\n"


def _inputs(case: Case) -> list[str]:
    return source.function("inputs", (), source.inputs(case))


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
    names = ("base64", "ctypes", "functools", "os", "pathlib", "subprocess", "sys", "zlib")
    needed = {f"import {name}" for name in names if f"{name}." in text}
    needed |= {"import torch"} | set(compiler.imports if compiler is not None else ())
    needed |= {"from torch.utils._pytree import tree_leaves"} if "tree_leaves(" in text else set()
    ordered = sorted(needed, key=lambda line: (line.startswith("from "), line))
    standard = [line for line in ordered if line.split()[1].partition(".")[0] in sys.stdlib_module_names]
    return [*standard, *([""] if standard else []), *(line for line in ordered if line not in standard)]


def _modules(case: Case) -> list[str]:
    """The imports of the modules that define the case's ops."""
    specs = [tag.removeprefix(OPS_FROM) for tag in case.tags if tag.startswith(OPS_FROM)]
    names = dict.fromkeys(spec.partition(":")[0] for spec in specs)
    used = [name for name in names if all(part.isidentifier() for part in name.split("."))]
    return ["", *(f"import {name}  # noqa: F401, which defines ops" for name in used)] if used else []


@dataclass(frozen=True)
class _Main:
    """Inputs, and statements that run the program in both ways and compare."""

    case: Case
    example: Case
    """What the program is compiled for, where sizes are free: the case itself, or it at other sizes."""
    compiler: Compiler
    verdict: Verdict | None
    later: list[LaterCall]
    results: Results | None

    def lines(self) -> list[str]:
        found = self._check()
        if self.later:
            return [*self._functions(), *self._guard(), *self._later_calls(found)]
        many = self._resized or any("compiled" in line for line in found.wrong)
        writes_seen = any("given" in line or "expected_inputs" in line for line in found.wrong)
        constant = [] if many or writes_seen or not self._inputs_stay() else source.constant_inputs(self.case)
        args = "inputs" if constant else "given" if writes_seen else "inputs()"
        definitions = [*constant, *self._guard()] if constant else [*_inputs(self.case), *self._guard()]
        if many:
            definitions = [*self.compiler.more_definitions([]), *self._example(), *definitions]
            before, call = self._compiling(), [f"got = compiled(*{args})"]
        else:
            before, call = self.compiler.once(args, again=calls_differ(self.verdict))
        seed = [f"torch.manual_seed({SEED})"] if self.results is None or self.results.draws else []
        call = [*seed, *(["given = inputs()"] if writes_seen else []), *call]
        if self._raises():
            only = self.compiler.flat and fails_before_run(self.verdict)
            return [*definitions, *(seed if before else []), *before, *([] if only else call), *found.right]
        if self.verdict is not None and self.verdict.kind == Kind.ACCEPTED:
            first = before if self._resized else []  # which it takes
            return [*definitions, *seed, *first, *_accepted(call if first else [*before, *call])]
        eager = ["expected_inputs = inputs()"] if writes_seen else []
        eager += self.compiler.eager("expected_inputs" if writes_seen else args, self.results)
        return [
            *definitions, *seed, *eager, *before, *repeat_calls([*call, *found.wrong], self.verdict), *found.right
        ]  # fmt: skip

    def _check(self) -> Check:
        if self._raises():
            return Check([], ['print("no error")'])
        if self.verdict is not None and self.verdict.kind == Kind.ACCEPTED:
            return Check([])
        return check(self.verdict, self.results) or self._whole()

    def _raises(self) -> bool:
        verdict = self.verdict
        return verdict is not None and verdict.outcome in NO_RESULT

    def _guard(self) -> list[str]:
        return subprocess_guard() if kills_process(self.verdict) else []

    def _inputs_stay(self) -> bool:
        """Whether all that the script does can be done with the same tensors."""
        if self._raises():
            return True
        results = self.results
        return results is not None and not results.shares_memory and (self.compiler.flat or not results.written)

    def _functions(self) -> list[str]:
        more = [*later_calls.functions(self.later), *self.compiler.more_definitions(self.later)]
        return [*self._example(), *_inputs(self.case), *more]

    def _later_calls(self, found: Check) -> list[str]:
        eager = self.compiler.eager("expected_inputs", self.results)
        checked = [*found.wrong, *found.right]
        others = self.compiler.run_other(), self.compiler.optimized
        calls = later_calls.statements(self.later, self._compiling(), eager, checked, *others)
        return [f"torch.manual_seed({SEED})", *calls]

    @property
    def _resized(self) -> bool:
        """Whether the program is compiled for other sizes than those of the calls that are looked at."""
        return self.example is not self.case

    def _example(self) -> list[str]:
        return source.function("example", (), source.inputs(self.example)) if self._resized else []

    def _compiling(self) -> list[str]:
        """Statements that compile the program; at its first call, if the compiler works then."""
        if not self._resized:
            return [f"compiled = {self.compiler.compile()}"]
        return [f"compiled = {self.compiler.compile('example()')}", "compiled(*example())"]

    def _whole(self) -> Check:
        """A comparison of all results, to the ULPs of the least precise floating dtype among the inputs."""
        rtol, atol = _closeness(self.case)
        flat = self.compiler.flat
        one, other = ("got", "list(expected)") if flat else ("(got, given)", "(expected, expected_inputs)")
        shown = ['print("eager:", expected)', f"print({python_source(f'{self.compiler.name}:')}, got)"]
        compared = f"torch.testing.assert_close({one}, {other}, rtol={rtol!r}, atol={atol!r}, equal_nan=True)"
        return Check([*([] if calls_differ(self.verdict) else shown), compared])


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


def _closeness(case: Case) -> tuple[float, float]:
    """The oracle's ULPs as a relative tolerance."""
    floating = [t.dtype for t in case.args if t.dtype.is_floating_point or t.dtype.is_complex]
    coarsest = max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
    row = tolerance(coarsest, [call.target for call in case.program.every_call]) if floating else TABLE[torch.float32]
    return row.ulps * torch.finfo(coarsest).eps, row.tiny
