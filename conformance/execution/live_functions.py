"""Functions by their code: those that live in this process, whatever holds them, and those of source files."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType


def live_objects() -> list[object]:
    """All objects that the garbage collector knows; to list them takes a tenth of a second."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()  # what is frozen is not listed
    found = gc.get_objects()
    if frozen:
        gc.freeze()
    return found


def live_code(prefixes: tuple[str, ...]) -> Iterator[CodeType]:
    """The code of each function whose file begins with one of these, and of the functions inside it."""
    found = {  # by type, for isinstance asks a proxy what it stands for
        one.__code__
        for one in live_objects()
        if type(one) is FunctionType and one.__code__.co_filename.startswith(prefixes)
    }
    for code in found:
        yield from _all_inside(code)


def code_of_files(folder: Path) -> Iterator[CodeType]:
    """The code of each function and class in the Python files of a folder, as Python compiles it; nothing of it runs.

    A file that is none is left out.
    """
    for file in sorted(folder.rglob("*.py")):
        try:
            module = SourceFileLoader(file.stem, str(file)).get_code(file.stem)
        except (SyntaxError, ValueError, OSError):
            continue
        if module is not None:
            yield from _all_inside(module)


def _all_inside(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all_inside(constant)
