"""Which cases run which lines of the compiler: some of every op are compiled and called under a trace.

So are a sample of each module and programs of each pair of steps: some lines are there for what no op of the database
calls.

A map is kept under the hash of the compiler's sources and of what is traced: another is made where these have changed.
"""

from __future__ import annotations

import faulthandler
import gzip
import hashlib
import itertools
import json
import multiprocessing
import os
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.line_tracer import Lines, LineTracer
from torchstone.conformance.execution.run_case import compile_cases, run_case
from torchstone.conformance.files import replace_file
from torchstone.conformance.fork import allow_processor_time, fork
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.program.case import Case
from torchstone.conformance.selection.features import unlike
from torchstone.conformance.sources import Source, load, programs
from torchstone.conformance.sources.names import OF_OPS
from torchstone.conformance.variants.apply import expand
from torchstone.conformance.variants.attempts import attempts
from torchstone.conformance.variants.registry import is_run_as_it_is
from torchstone.fuzz.selftrial.cases import ARGUMENT_SAMPLES

T = TypeVar("T")

SAMPLES = 5
"""Samples of an op's first dtype that are traced, and their gradients; of the other dtypes one is: they take the same
ways but for that. In 18 ops that had lines left after two samples, those of six that are chosen so showed 172 of the
mutants in these, their gradients 133, and six further samples none."""

POOL = 200
"""Samples of an op and dtype of which those that differ most are taken."""

DTYPES = 4
"""Dtypes of an op that are traced, as different from each other as may be."""

VARIANTS_TRACED = ("empty", "huge", "dims", "numbers", "arguments", "mixed")
"""The variants in which the largest of these samples is traced: those in which the compiler writes other code. Those
were taken that showed most new lines, in 45 ops, for the time that they take: ``huge`` showed 259 for 0.1 s an op."""

SELDOM_TRACED = ("strided", "long", "dynamic", "batch", "gradients", "dtypes", "lazy")
"""More of these, in which all ops run the same other lines: of one op in `SELDOM`. They take 0.2 to 0.7 s."""

SELDOM = 8

PROGRAM_DTYPE = "float32"
"""Of the programs of each pair of steps that are traced: they take 0.1 s each."""

MODULES = "modules"
"""The source whose modules are traced: they train, and call what no function of the database does."""

_CATEGORIES = ("float32", "int64", "complex64", "bool", "bfloat16", "uint8", "float64", "int8", "float16", "complex128")

OPS_IN_A_TASK = 8

FORKS = 16
"""Forks that trace the cases of a task: each but the first goes on behind the case that ended the one before."""

SECONDS = 120
"""Processor time that a case may take under the trace: one that takes more is left out."""


@dataclass
class LineMap:
    """Lines by what ran them: for each file and line the cases, as the bits of a number.

    ``cases`` are the ids of all that were traced, and ``sizes`` how many lines each of them ran.
    """

    cases: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    lines: dict[str, dict[int, int]] = field(default_factory=dict)

    def add(self, case: str, ran: Lines) -> None:
        """Take in what one case ran."""
        bit = 1 << len(self.cases)
        self.cases.append(case)
        self.sizes.append(sum(map(len, ran.values())))
        for path, numbers in ran.items():
            of_file = self.lines.setdefault(path, {})
            for number in numbers:
                of_file[number] = of_file.get(number, 0) | bit

    def covering(self, path: str, first: int = 0, last: int = 1 << 30) -> list[str]:
        """The cases that run one of these lines, those first that run the fewest others."""
        bits = 0
        for number, of_line in self.lines.get(path, {}).items():
            if first <= number <= last:
                bits |= of_line
        found = [at for at, digit in enumerate(reversed(f"{bits:b}")) if digit == "1"]
        return [self.cases[at] for at in sorted(found, key=lambda at: (self.sizes[at], at))]

    def to_json(self) -> dict[str, Any]:
        """Sets of cases are written once, as many lines have the same."""
        sets: dict[int, int] = {}
        lines = {
            path: {str(number): sets.setdefault(bits, len(sets)) for number, bits in sorted(of_file.items())}
            for path, of_file in sorted(self.lines.items())
        }
        return {"cases": self.cases, "sizes": self.sizes, "sets": [f"{bits:x}" for bits in sets], "lines": lines}

    @staticmethod
    def from_json(fields: Any) -> LineMap:
        sets = [int(text, 16) for text in fields["sets"]]
        lines = {
            str(path): {int(number): sets[at] for number, at in of_file.items()}
            for path, of_file in fields["lines"].items()
        }
        return LineMap([str(name) for name in fields["cases"]], [int(size) for size in fields["sizes"]], lines)


def line_map(
    backend: str, folder: Path, jobs: int = 1, progress: Callable[[int, int], None] = lambda done, of: None
) -> LineMap:
    """The map of a backend: from ``folder`` if it is there, and otherwise made and put there."""
    steps = tuple(len(steps) for steps in programs.STEPS.values())  # which the numbers of programs follow from
    traced = (SAMPLES, DTYPES, VARIANTS_TRACED, SELDOM_TRACED, PROGRAM_DTYPE, *_TRACED, steps)
    asked = hashlib.sha256(repr((population.digest(), *traced)).encode()).hexdigest()[:16]
    path = folder / f"lines-{backend}-{asked}.json.gz"
    try:
        return LineMap.from_json(json.loads(gzip.decompress(path.read_bytes())))
    except (OSError, EOFError, KeyError, TypeError, ValueError):
        pass  # there is none, or none that can be read
    found = LineMap()
    for case, ran in sorted(_traced(backend, jobs, progress), key=lambda row: row[0]):
        found.add(case, ran)
    with replace_file(path) as file:
        file.write(gzip.compress(json.dumps(found.to_json()).encode(), mtime=0))
    return found


def trace_op(backend: str, op: str) -> list[tuple[str, Lines]]:
    """What cases of an op run of the compiler, by id; what the backend does not take runs lines, too."""
    return [(case, ran) for case, ran in _trace(backend, traced_cases(op)) if ran]


def _trace(backend: str, cases: Iterable[Case]) -> Iterator[tuple[str, Lines]]:
    from torchstone.conformance.backends import load as load_backend

    compiler = load_backend(backend)
    for case in cases:
        tracer = LineTracer(str(population.ROOT), population.FOLDERS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if is_run_as_it_is(case):
                tracer.run(_compile_and_call, case, compiler)
            else:
                tracer.run(run_case, case, _CalledOnce(compiler))
        yield case.id, tracer.lines()


def _trace_in_forks(backend: str, cases: Callable[[], Iterable[Case]]) -> Iterator[tuple[str, Lines]]:
    """What each case runs. What ends the process, or has no end, is left out: so do some in eager."""
    known = 0
    fatal: dict[str, str] = {}

    def work(writing: int) -> None:
        faulthandler.disable()
        with os.fdopen(writing, "w") as file:

            def tell(made_or_ran: object) -> None:
                print(json.dumps(made_or_ran), file=file, flush=True)
                allow_processor_time(SECONDS)

            attempts.begin, attempts.fatal = tell, fatal
            tell("")
            for case, ran in _trace(backend, itertools.islice(cases(), known, None)):
                tell([case, {path: sorted(lines) for path, lines in ran.items()}])

    for _ in range(FORKS):
        child, reading = fork(work)
        with os.fdopen(reading) as file:
            told = [json.loads(line) for line in file if line.endswith("\n")]
        _, status = os.waitpid(child, 0)
        rows = [one for one in told if isinstance(one, list)]
        yield from ((case, {path: set(lines) for path, lines in ran.items()}) for case, ran in rows)
        if not status:
            return
        known += len(rows)
        if told and isinstance(told[-1], str) and told[-1]:
            fatal[told[-1]] = "making it ends the process"
        else:
            known += 1


def database_of(op: str) -> Source:
    """The source that has samples of an op. Raises UnknownName."""
    found = (source for source in map(load, OF_OPS) if op in source.op_names())
    return next(found, load(OF_OPS[0]))


def traced_cases(op: str) -> Iterator[Case]:
    """A large sample of some dtypes, unlike ones of the first of them, and the largest of these in variants."""
    for number, dtype in enumerate(spread(database_of(op).dtypes_of(op))[:DTYPES]):
        cases = unlike_samples(op, dtype, 1 if number else SAMPLES)
        yield from cases
        if not number:
            yield from (case for case in expand(cases, ("backward",)) if isinstance(case, Case))
            names = VARIANTS_TRACED if zlib.crc32(op.encode()) % SELDOM else VARIANTS_TRACED + SELDOM_TRACED
            yield from (case for case in expand(cases[:1], names) if isinstance(case, Case))


def traced_program(pair: str) -> Iterator[Case]:
    """Programs of a pair of steps: so many that each first step is in one, of this pair or of another of its class."""
    first = pair.split("+")[0]
    pairs = [name for name in load(programs.SOURCE).op_names() if name.split("+")[0] == first]
    steps, indices = len(programs.STEPS[first]), programs.indices_of(pair)
    for row in range(pairs.index(pair) % steps, steps, len(pairs)):
        block = zlib.crc32(f"{pair}:{row}".encode()) % (len(indices) // steps)
        with suppress(InputError):  # there is none of this index
            yield programs.case(pair, PROGRAM_DTYPE, block * steps + row)


def traced_module(name: str) -> Iterator[Case]:
    """A sample of a module in evaluation mode, and two in training mode with their gradients."""
    found = [
        case for case in load(MODULES).iterate([name], [PROGRAM_DTYPE], ARGUMENT_SAMPLES) if isinstance(case, Case)
    ]
    yield from itertools.islice((case for case in found if not case.index % 2), 1)
    trained = spaced([case for case in found if case.index % 2], 2)
    yield from (case for case in expand(trained, ("backward",)) if isinstance(case, Case))


def unlike_samples(op: str, dtype: str, most: int) -> list[Case]:
    """Some of the samples of an op and dtype: the largest, and then those that differ most in their arguments."""
    found = database_of(op).iterate([op], [dtype], POOL)
    cases = [case for case in found if isinstance(case, Case)]
    return unlike(sorted(cases, key=lambda case: -sum(tensor.numel() for tensor in case.args)), most)


def spaced(rows: Sequence[T], most: int) -> list[T]:
    """Some of the rows: the first, and others at equal distances."""
    step = max(1.0, len(rows) / max(1, most))
    return [rows[int(at * step)] for at in range(min(most, len(rows)))]


def spread(dtypes: Iterable[str]) -> list[str]:
    """The dtypes so that the first ones are as different from each other as may be."""
    rank = {name: at for at, name in enumerate(_CATEGORIES)}
    return sorted(dtypes, key=lambda name: (rank.get(name, len(rank)), name))


def _compile_and_call(case: Case, compiler: Any) -> None:
    """Compile and call the case as a trial does, which compiles as a worker: with others, or one alone as well."""
    if not hasattr(compiler, "compile_many"):
        compiler.compile(case.program, case.fresh_args())(*case.fresh_args())
        return
    (compiled,) = compile_cases([case], compiler)
    if not isinstance(compiled, Exception):
        compiled(*case.fresh_args())


class _CalledOnce:
    """A backend whose programs are called and then raise: which lines run is known, and no number is judged."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compile(self, program: Any, args: Any) -> Callable[..., Any]:
        compiled = self._backend.compile(program, args)

        def call(*args: Any) -> Any:
            compiled(*args)
            raise _Enough

        return call


class _Enough(Exception):
    """A program was called, and more is not asked."""


_TRACED: dict[str, Callable[[str], Iterator[Case]]] = {
    **dict.fromkeys(OF_OPS, traced_cases),
    MODULES: traced_module,
    programs.SOURCE: traced_program,
}
"""What is traced of each name of a source."""


def _traced(backend: str, jobs: int, progress: Callable[[int, int], None]) -> Iterator[tuple[str, Lines]]:
    tasks = [
        (source, names[at : at + OPS_IN_A_TASK])
        for source in _TRACED
        for names in [load(source).op_names()]
        for at in range(0, len(names), OPS_IN_A_TASK)
    ]
    for done, rows in enumerate(_results(backend, tasks, jobs), 1):
        progress(done, len(tasks))
        yield from rows


def _results(backend: str, tasks: list[tuple[str, list[str]]], jobs: int) -> Iterable[list[tuple[str, Lines]]]:
    if jobs == 1:
        yield from (_trace_ops(backend, *task) for task in tasks)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from (task.result() for task in as_completed([pool.submit(_trace_ops, backend, *one) for one in tasks]))


def _trace_ops(backend: str, source: str, names: list[str]) -> list[tuple[str, Lines]]:
    torch.set_num_threads(1)  # the threads of this process are not in its forks, which would wait for them for ever
    rows = _trace_in_forks(backend, lambda: (case for name in names for case in _TRACED[source](name)))
    return [(case, ran) for case, ran in rows if ran]
