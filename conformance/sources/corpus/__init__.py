"""Bugs of the past as cases: a folder of case files, such as reductions are. One is shipped; users have their own.

A case is called after its file, so that adding and removing files renames no other: ``corpus:NAME:dtype:0``, with the
folder's name before NAME for a user's. Files may be a stranger's: they are parsed, and a damaged one costs itself only.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case, CaseError, Untested
from torchstone.conformance.program.literals import DTYPES
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.sampling import check_dtypes
from torchstone.conformance.sources.tags import OF_CASES
from torchstone.conformance.variants.registry import DEFAULT, is_run_as_it_is

SOURCE = "corpus"
SUFFIX = ".safetensors"
SHIPPED = Path(__file__).parent / "cases"
LARGEST = 1 << 30  # bytes of a file that is read: a case is in memory several times over
NO_DTYPE = "unknown"  # of a file that cannot be read


class Corpus:
    """The case files in a folder and the folders in it, sorted. Raises ``InputError`` where there is no such folder."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = SHIPPED if folder is None else Path(folder)
        if not self.folder.is_dir():
            raise InputError(f'"{folder}" is no folder: a corpus is a folder of case files (*{SUFFIX})')
        self._found_with: dict[str, set[str]] = {}
        self._prefix = "" if folder is None else f"{_plain(self.folder.resolve().name)}/"

    @functools.cached_property
    def _entries(self) -> dict[str, list[Case | Untested]]:
        found: dict[str, list[Case | Untested]] = {}
        for path in sorted(self.folder.rglob(f"*{SUFFIX}")):
            name = self._prefix + _plain(path.relative_to(self.folder).as_posix().removesuffix(SUFFIX))
            entries = found.setdefault(name, [])
            entry = _read(path, name, len(entries))
            entries.append(entry)
            if isinstance(entry, Case):
                self._found_with.setdefault(name, set()).add(entry.op)
                entries[-1] = entry.replace(source=SOURCE, op=name)
        if not found:
            raise InputError(f'"{self.folder}" holds no case file (*{SUFFIX})')
        return found

    def damaged(self) -> list[str]:
        """What is wrong with each file that cannot be read."""
        return [e.reason for entries in self._entries.values() for e in entries if isinstance(e, Untested)]

    def op_names(self) -> list[str]:
        """Every file's name, sorted."""
        return sorted(self._entries)

    def dtypes_of(self, op: str) -> list[str]:
        """The dtype of a file's case. Raises ``UnknownName``."""
        self.select([op])
        return list(dict.fromkeys(entry.dtype for entry in self._entries[op]))

    def tags_of(self, op: str) -> frozenset[str]:
        """The tags of a file's case: those of the op it was found with, where PyTorch's database has that."""
        from torchstone.conformance.sources import opinfo

        self.select([op])
        known = self._found_with.get(op, set()) & set(opinfo.op_names())
        return frozenset({"regression"}).union(*map(opinfo.tags_of, known))

    def select(self, ops: Iterable[str] | None = None) -> list[str]:
        """The files meant by names or shell patterns, sorted. Raises as ``opinfo.select``."""
        return match(ops, self._entries, "case of the corpus")

    def iterate(
        self, ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
    ) -> Iterator[Case | Untested]:
        """Cases in a fixed order, as ``opinfo.iterate`` gives them; of every dtype, what cannot be read."""
        wanted = check_dtypes(dtypes)
        for op in self.select(ops):
            for entry in itertools.islice(self._entries[op], limit_per_op):
                if wanted is None or entry.dtype in (*wanted, NO_DTYPE):
                    yield entry

    def case(self, op: str, dtype: str, index: int) -> Case:
        """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
        self.select([op])
        for entry in self._entries[op]:
            if (entry.dtype, entry.index) == (dtype, index):
                if isinstance(entry, Case):
                    return entry
                raise InputError(entry.reason)
        raise InputError(f"{op} has no sample {index} of {dtype}, only of {', '.join(self.dtypes_of(op))}")


def check_names(folders: Iterable[str]) -> None:
    """Raise ``InputError`` where cases of two folders would have the same ids."""
    known: dict[str, Path] = {}
    for folder in folders:
        path = Path(folder).resolve()
        if known.setdefault(_plain(path.name), path) != path:
            raise InputError(f"two corpora are called {path.name}: {known[_plain(path.name)]} and {path}; rename one")


def _read(path: Path, name: str, index: int) -> Case | Untested:
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise CaseError(f"{path}: no file, or larger than {LARGEST >> 20} MiB")
        case = Case.load(path)
        if case.dtype not in DTYPES:
            raise CaseError(f"{path}: damaged case: unknown dtype {case.dtype[:40]!r}")
        # Of a variant without a way of its own to be run, the program and the inputs are all there is.
        variant = DEFAULT if is_run_as_it_is(case) else case.variant
        tags = tuple(tag for tag in case.tags if tag in OF_CASES)
        return case.replace(variant=variant, index=index, tags=tags)
    except OSError as error:
        return Untested(SOURCE, name, NO_DTYPE, f"{path}: {error.strerror or error}", index)
    except (CaseError, InputError) as error:
        return Untested(SOURCE, name, NO_DTYPE, str(error), index)


def _plain(name: str) -> str:
    """A file's name as an op of a case id, whatever the file is called."""
    return re.sub(r"[^\w./+-]", "_", name)
