"""Names of ops: which ones a user means, and a copy of the databases' own names on disk.

PyTorch's databases take seconds to import. Their names are written down when they are known, so that the next misspelt
one is refused before anything is loaded. What is on disk counts for one PyTorch only, by its version and its files.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib.util
import json
from collections.abc import Collection, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.files import replace_file, user_cache

OF_OPS = ("opinfo", "functions")
"""The sources of ops with samples."""

ASKED_ALONE = (*OF_OPS, "modules")
"""The sources in which an op that the fuzzer is to ask alone is looked up, in this order."""

DATABASES = (*OF_OPS, "modules", "errors", "programs")
"""Sources whose names follow from PyTorch's files and ours, and whose dtypes are those of PyTorch."""

_FILES = ("version.py", "testing/_internal", "testing/_internal/opinfo", "testing/_internal/opinfo/definitions")
_OURS = ("*.py", "functions/*.py", "programs/*.py")


def match(wanted: Iterable[str] | None, known: Collection[str], kind: str = "op") -> list[str]:
    """The known names meant by names and shell patterns, sorted; all of them for None.

    Raises ``UnknownName``, or ``InputError`` for a pattern that matches nothing.
    """
    if wanted is None:
        return sorted(known)
    chosen: set[str] = set()
    for name in wanted:
        if is_pattern(name):
            matched = fnmatch.filter(known, name)
            if not matched:
                raise InputError(f'no {kind} matches "{name}"')
            chosen.update(matched)
        elif name in known:
            chosen.add(name)
        else:
            raise UnknownName(kind, name, known)
    return sorted(chosen)


def is_pattern(name: str) -> bool:
    """Whether a name has a mark of shell patterns."""
    return any(mark in name for mark in "*?[")


def known_names(source: str) -> list[str] | None:
    """The names of a source's ops as they stand on disk; None where they do not, or are of another PyTorch."""
    if source not in DATABASES:
        return None
    try:
        kept = json.loads(_place(source).read_text(encoding="utf-8"))
        names = kept["names"]
        if kept["of"] != _stamps() or not all(isinstance(name, str) for name in names):
            return None
    except (OSError, RuntimeError, ValueError, LookupError, TypeError, PackageNotFoundError):
        return None
    return names


def keep_names(source: str, names: list[str]) -> None:
    """Write down the names of a source's ops, where that can be done."""
    if source in DATABASES and known_names(source) != names:
        text = json.dumps({"of": _stamps(), "names": names}, indent=1)
        with contextlib.suppress(InputError, RuntimeError), replace_file(_place(source)) as file:
            file.write(text.encode())


def _place(source: str) -> Path:
    """Raises ``RuntimeError`` for a user who has no home."""
    return user_cache() / f"names-{source}.json"


def _stamps() -> Any:
    """What another database has another of: PyTorch's version, the files that it is made of, ours that read it."""
    return [version("torch"), *([str(path), *_stamp(path)] for path in _files())]


def _files() -> Iterator[Path]:
    found = importlib.util.find_spec("torch")
    for root in found.submodule_search_locations or () if found else ():
        for name in _FILES:
            path = Path(root, name)
            yield path
            yield from sorted(path.glob("*.py"))
    for pattern in _OURS:
        yield from sorted(Path(__file__).parent.glob(pattern))


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_mtime_ns, status.st_size
