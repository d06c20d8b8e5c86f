"""Which attributes of an object a program reads before it writes them: seen by a class that the object has meanwhile.

Without that every attribute that the program's code names would have to be what it was: also one that it only leaves
behind, as ``self.last = y`` does, and reads again after that.
"""

from __future__ import annotations

from typing import Any

# Asked for by what copies an object, and so reads all of it past its class.
_COPYING = frozenset({"__reduce_ex__", "__reduce__", "__getstate__", "__copy__", "__deepcopy__"})


class Reads:
    """What was asked of an object, missing attributes included, and what was written first."""

    __slots__ = ("first", "written")

    def __init__(self) -> None:
        self.first: set[str] = set()
        self.written: set[str] = set()

    @property
    def everything(self) -> bool:
        """Whether the object may have been read as a whole."""
        return not _COPYING.isdisjoint(self.first)


def watched_class(cls: type, seen: dict[int, Reads]) -> type | None:
    """Return a class to be given to the instances of ``cls`` that notes in ``seen``, by their id, what they are asked.

    None for a class that would notice: one that is told of classes derived from it, or whose instances keep theirs.
    """
    if type(cls) is not type or any("__init_subclass__" in vars(base) for base in cls.__mro__[:-1]):
        return None

    def __getattribute__(self: Any, name: str) -> Any:
        reads = seen.get(id(self))
        if reads is not None and name not in reads.written:
            reads.first.add(name)
        return cls if name == "__class__" else cls.__getattribute__(self, name)  # type: ignore[call-arg]

    def __setattr__(self: Any, name: str, value: Any) -> None:
        cls.__setattr__(self, name, value)  # type: ignore[call-arg]
        reads = seen.get(id(self))
        if reads is not None:
            reads.written.add(name)

    body = {"__slots__": (), "__getattribute__": __getattribute__, "__setattr__": __setattr__}
    body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    try:
        return type(cls.__name__, (cls,), body)
    except TypeError:  # it allows none to be derived
        return None
