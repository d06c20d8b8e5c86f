"""Which ops run which lines of the compiler: their first samples are compiled and called under a trace.

The map is kept under the hash of the compiler's sources, so that one is made only where the compiler has changed.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeAlias

from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import load

Kind: TypeAlias = "tuple[str, str]"
"""An op and a dtype: whose first sample is traced."""

Lines: TypeAlias = "dict[str, set[int]]"
"""Lines that ran, by file."""

FIRST_DTYPE_SAMPLES = 3
"""Samples of an op's first dtype; of the others one is traced: they take the same ways, apart from their dtype."""

OPS_IN_A_TASK = 8


@dataclass
class LineMap:
    """Lines by what ran them: for each file and line the kinds, as the bits of a number.

    ``kinds`` are all that were traced, and ``sizes`` how many lines each of them ran.
    """

    kinds: list[Kind] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    lines: dict[str, dict[int, int]] = field(default_factory=dict)

    def add(self, kind: Kind, ran: Lines) -> None:
        """Take in what one kind ran."""
        bit = 1 << len(self.kinds)
        self.kinds.append(kind)
        self.sizes.append(sum(map(len, ran.values())))
        for path, numbers in ran.items():
            of_file = self.lines.setdefault(path, {})
            for number in numbers:
                of_file[number] = of_file.get(number, 0) | bit

    def covering(self, path: str, first: int, last: int) -> list[Kind]:
        """The kinds that run one of these lines, those first that run the fewest others."""
        of_file = self.lines.get(path, {})
        bits = 0
        for number in range(first, last + 1):
            bits |= of_file.get(number, 0)
        found = [index for index in range(bits.bit_length()) if bits >> index & 1]
        return [self.kinds[index] for index in sorted(found, key=lambda index: (self.sizes[index], index))]

    def to_json(self) -> dict[str, Any]:
        """Sets of kinds are written once, as many lines have the same."""
        sets: dict[int, int] = {}
        lines = {
            path: {str(number): sets.setdefault(bits, len(sets)) for number, bits in sorted(of_file.items())}
            for path, of_file in sorted(self.lines.items())
        }
        return {"kinds": self.kinds, "sizes": self.sizes, "sets": [f"{bits:x}" for bits in sets], "lines": lines}

    @staticmethod
    def from_json(fields: Any) -> LineMap:
        sets = [int(text, 16) for text in fields["sets"]]
        lines = {
            str(path): {int(number): sets[at] for number, at in of_file.items()}
            for path, of_file in fields["lines"].items()
        }
        return LineMap([(str(op), str(dtype)) for op, dtype in fields["kinds"]], list(fields["sizes"]), lines)


def line_map(
    backend: str, folder: Path, jobs: int = 1, progress: Callable[[int, int], None] = lambda done, of: None
) -> LineMap:
    """The map of a backend: from ``folder`` if it is there, and otherwise made and put there."""
    path = folder / f"lines-{backend}-{population.digest()}.json.gz"
    try:
        return LineMap.from_json(json.loads(gzip.decompress(path.read_bytes())))
    except (OSError, EOFError, KeyError, TypeError, ValueError):
        pass  # there is none, or none that can be read
    found = LineMap()
    for kind, ran in sorted(_traced(backend, jobs, progress), key=lambda row: row[0]):
        found.add(kind, ran)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps(found.to_json()).encode(), mtime=0))
    return found


def trace_op(backend: str, op: str) -> list[tuple[Kind, Lines]]:
    """What the first samples of an op run of the compiler, by dtype; what the backend does not take runs lines, too."""
    from torchstone.conformance.backends import load as load_backend

    found, source, compiler = [], load("opinfo"), load_backend(backend)
    for number, dtype in enumerate(source.dtypes_of(op)):
        tracer = Tracer(str(population.ROOT))
        for case in source.iterate([op], [dtype], 1 if number else FIRST_DTYPE_SAMPLES):
            if isinstance(case, Case):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tracer.run(_compiled_and_called, case, compiler)
        if tracer.ran:
            found.append(((op, dtype), tracer.lines()))
    return found


def _compiled_and_called(case: Case, compiler: Any) -> None:
    compiler.compile(case.program, case.fresh_args())(*case.fresh_args())


class Tracer:
    """Notes the lines below a folder that run."""

    def __init__(self, root: str) -> None:
        self.root = f"{root}/"
        self.ran: set[tuple[CodeType, int]] = set()
        self._watched: dict[CodeType, bool] = {}

    def run(self, function: Callable[..., Any], *args: Any) -> None:
        """Call a function under the trace. What it raises is no matter: the lines before it ran."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            function(*args)
        except Exception:
            return
        finally:
            sys.settrace(before)

    def lines(self) -> Lines:
        """What ran, by file from the folder on."""
        out: Lines = {}
        for code, number in self.ran:
            out.setdefault(code.co_filename.removeprefix(self.root), set()).add(number)
        return out

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        code = frame.f_code
        watched = self._watched.get(code)
        if watched is None:
            watched = self._watched[code] = code.co_filename.startswith(
                tuple(f"{self.root}{folder}/" for folder in population.FOLDERS)
            )
        return self._line if watched else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self.ran.add((frame.f_code, frame.f_lineno))
        return self._line


def _traced(backend: str, jobs: int, progress: Callable[[int, int], None]) -> Iterator[tuple[Kind, Lines]]:
    ops = load("opinfo").op_names()
    tasks = [ops[at : at + OPS_IN_A_TASK] for at in range(0, len(ops), OPS_IN_A_TASK)]
    for done, rows in enumerate(_results(backend, tasks, jobs), 1):
        progress(done, len(tasks))
        yield from rows


def _results(backend: str, tasks: list[list[str]], jobs: int) -> Iterable[list[tuple[Kind, Lines]]]:
    if jobs == 1:
        yield from (_trace_ops(backend, ops) for ops in tasks)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from (task.result() for task in as_completed([pool.submit(_trace_ops, backend, ops) for ops in tasks]))


def _trace_ops(backend: str, ops: list[str]) -> list[tuple[Kind, Lines]]:
    return [row for op in ops for row in trace_op(backend, op)]
