"""Which environment variables a program asks for or sets: most of them it never names."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

# What may ask for others on behalf of itself, and what only passes on who asks.
_OWN = (str(Path(torch.__file__).parent), str(Path(__file__).parents[2]))
_BETWEEN = (os.__file__, "<frozen")


class Asked:
    """The names that were asked for, ``everything`` where the program went through all that there are."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.everything = False

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """In the block, note what is asked of ``os.environ`` by the program, and by what it calls."""
        environ: Any = os.environ
        encode, decode = environ.encodekey, environ.decodekey

        def encodekey(key: Any) -> bytes:
            if _asks():
                self.names.add(key)
            return encode(key)

        def decodekey(key: bytes) -> Any:
            self.everything = self.everything or _asks()
            return decode(key)

        environ.encodekey, environ.decodekey = encodekey, decodekey
        try:
            yield
        finally:
            environ.encodekey, environ.decodekey = encode, decode


def _asks() -> bool:
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_BETWEEN):
        frame = frame.f_back
    return not frame.f_code.co_filename.startswith(_OWN)


def data() -> dict[bytes, bytes]:
    """Return the dict that ``os.environ`` keeps the variables in."""
    return os.environ._data  # type: ignore[attr-defined]


def variables(obj: dict[bytes, bytes], only: frozenset[str] | None) -> dict[Any, Any]:
    """Return the variables by their names."""
    named = {os.fsdecode(name): value for name, value in obj.items()}
    return {name: value for name, value in named.items() if only is None or name in only}


def set_variables(obj: dict[bytes, bytes], entries: dict[Any, Any], only: frozenset[str] | None) -> None:
    """Let the variables be these, for the processes that are started too."""
    for name in variables(obj, only).keys() - entries.keys():
        del os.environ[name]
    for name, value in entries.items():
        if obj.get(os.fsencode(name)) != value:
            os.environ[name] = os.fsdecode(value)
