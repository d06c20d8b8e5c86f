"""The compile cache: what is lowered to the same module with the same options is the same machine code.

In memory only, and for as long as somebody holds the code; the last few engines are kept after that. The key is the
whole lowered module, so that nothing a frontend, an expansion or a lowering does can be hidden by it.
TORCHSTONE_CACHE=0 in the environment turns it off.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from torchstone.compiler.lowering.mlir_passes.destination import Boundary
from torchstone.compiler.runtime.cpu.jit import Engine

VARIABLE = "TORCHSTONE_CACHE"
# Engines kept when nobody holds them any more: each is about a megabyte.
KEPT = 16

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Made:
    """A function in an engine: which of its entries, how it is called, the messages of its checks, and its seconds."""

    index: int
    boundary: Boundary
    messages: tuple[str, ...]
    seconds: float


def enabled() -> bool:
    """Say whether machine code is used again."""
    return os.environ.get(VARIABLE, "1") not in ("", "0")


def key_of(module: Any, *options: Any) -> Key:
    """Return the key of a module, or of its text, compiled with options: all of it, locations included."""
    if isinstance(module, str):
        content = module.encode()
    else:
        buffer = io.BytesIO()
        module.operation.write_bytecode(buffer)  # half the time of printing it
        content = buffer.getvalue()
    return hashlib.blake2b(content, digest_size=32).digest(), *options


class Cache:
    """Engines by the keys of the functions in them. It holds the ``kept`` last used ones, and no other."""

    def __init__(self, kept: int = KEPT) -> None:
        self.hits = 0
        self._kept = kept
        self._engines: WeakValueDictionary[Key, Engine] = WeakValueDictionary()
        self._made: WeakKeyDictionary[Engine, dict[Key, Made]] = WeakKeyDictionary()
        self._recent: OrderedDict[int, Engine] = OrderedDict()

    def find(self, key: Key) -> tuple[Engine, Made] | None:
        """Return where the function of a key is."""
        engine = self._engines.get(key)
        if engine is None:
            return None
        self.hits += 1
        self._keep(engine)
        return engine, self._made[engine][key]

    def add(self, engine: Engine, made: Mapping[Key, Made]) -> None:
        """Take in an engine and its functions."""
        self._made[engine] = dict(made)
        self._engines.update(dict.fromkeys(made, engine))
        self._keep(engine)

    def clear(self) -> None:
        """Forget everything; functions that somebody holds go on working."""
        self._engines.clear()
        self._made.clear()
        self._recent.clear()

    def _keep(self, engine: Engine) -> None:
        self._recent[id(engine)] = engine
        self._recent.move_to_end(id(engine))
        while len(self._recent) > self._kept:
            self._recent.popitem(last=False)


CACHE = Cache()
