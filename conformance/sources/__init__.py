"""Where cases come from: PyTorch's databases, whole models. A source is a module with the functions of ``Source``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from torchstone.conformance.errors import InputError, UnknownName

if TYPE_CHECKING:
    from torchstone.conformance.case import Case, Untested

SOURCES: dict[str, str] = {
    "opinfo": "torchstone.conformance.sources.opinfo",
    "modules": "torchstone.conformance.sources.modules",
    "models": "torchstone.conformance.sources.models",
    "errors": "torchstone.conformance.sources.error_inputs",
}


class Source(Protocol):
    """A source of cases: ops with samples of some dtypes, in a fixed order."""

    def op_names(self) -> list[str]: ...
    def dtypes_of(self, op: str) -> list[str]: ...
    def select(self, ops: Iterable[str] | None = None) -> list[str]: ...
    def case(self, op: str, dtype: str, index: int) -> Case: ...
    def iterate(
        self, ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
    ) -> Iterator[Case | Untested]: ...


def load(name: str) -> Source:
    """Import a source. Raises ``UnknownName``."""
    if name not in SOURCES:
        raise UnknownName("source", name, SOURCES)
    return cast("Source", import_module(SOURCES[name]))


def select(sources: Sequence[str], ops: Sequence[str] | None) -> dict[str, list[str]]:
    """The ops that names and shell patterns mean, by source; each of them has to mean something in one source.

    Raises ``UnknownName`` for a name that no source has, ``InputError`` for a vain pattern.
    """
    loaded = {name: load(name) for name in sources}
    if ops is None:
        return {name: source.select() for name, source in loaded.items()}
    chosen: dict[str, set[str]] = {name: set() for name in loaded}
    for op in ops:
        found, problem = False, InputError("")
        for name, source in loaded.items():
            try:
                chosen[name].update(source.select([op]))
                found = True
            except UnknownName:
                problem = UnknownName("op", op, [known for other in loaded.values() for known in other.op_names()])
            except InputError as error:
                problem = error
        if not found:
            raise problem
    return {name: sorted(names) for name, names in chosen.items()}


def iterate(
    chosen: Mapping[str, Sequence[str]],
    dtypes: Sequence[str] | None,
    limit_per_op: int | None,
    variants: Sequence[str] = ("default",),
) -> Iterator[Case | Untested]:
    """The cases of ``select``ed ops, source by source, each in every one of the variants."""
    from torchstone.conformance.variants import expand

    for name, ops in chosen.items():
        if ops:
            yield from expand(load(name).iterate(ops, dtypes, limit_per_op), variants)


def find_case(name: str) -> Case:
    """The case of an id, ``source:op:dtype:index`` and perhaps ``:variant``. Raises ``UnknownName``, ``InputError``."""
    from torchstone.conformance.case import Untested
    from torchstone.conformance.variants import DEFAULT, apply

    source, op, dtype, index, variant, *rest = [*name.split(":"), DEFAULT]
    if rest not in ([], [DEFAULT]) or not index.isdigit():
        raise InputError(f'"{name}" is not a case id; they look like opinfo:softmax:float32:0')
    found = apply(load(source).case(op, dtype, int(index)), variant)
    if isinstance(found, Untested):
        raise InputError(f"{found.id} is no case: {found.reason}")
    return found
