"""Where cases come from: PyTorch's databases, whole models. A source is a module with the functions of ``Source``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from torchstone.conformance.errors import InputError, UnknownName

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case, Untested

SOURCES: dict[str, str] = {
    "opinfo": "torchstone.conformance.sources.opinfo",
    "modules": "torchstone.conformance.sources.modules",
    "models": "torchstone.conformance.sources.models",
    "errors": "torchstone.conformance.sources.error_inputs",
    "corpus": "torchstone.conformance.sources.corpus",
}
FOLDER = "corpus="
"""Before a folder of case files, the name of the source that they are."""


class Source(Protocol):
    """A source of cases: ops with samples of some dtypes, in a fixed order."""

    def op_names(self) -> list[str]: ...
    def dtypes_of(self, op: str) -> list[str]: ...
    def tags_of(self, op: str) -> frozenset[str]: ...
    def select(self, ops: Iterable[str] | None = None) -> list[str]: ...
    def case(self, op: str, dtype: str, index: int) -> Case: ...
    def iterate(
        self, ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
    ) -> Iterator[Case | Untested]: ...


def load(name: str) -> Source:
    """Import a source. Raises ``UnknownName``, ``InputError`` for a corpus that is no folder."""
    folder = name.removeprefix(FOLDER) if name.startswith(FOLDER) else None
    if folder is not None or name == "corpus":
        from torchstone.conformance.sources.corpus import Corpus

        return Corpus(folder)
    if name not in SOURCES:
        raise UnknownName("source", name, SOURCES)
    return cast("Source", import_module(SOURCES[name]))


def load_all(names: Iterable[str]) -> dict[str, Source]:
    """Import several sources, each once. Raises as ``load``, and for two whose cases have the same ids."""
    wanted = list(dict.fromkeys(names))
    folders = [name.removeprefix(FOLDER) for name in wanted if name.startswith(FOLDER)]
    if folders:
        from torchstone.conformance.sources.corpus import check_names

        check_names(folders)
    return {name: load(name) for name in wanted}


def select(sources: Sequence[str] | Mapping[str, Source], ops: Sequence[str] | None) -> dict[str, list[str]]:
    """The ops that names and shell patterns mean, by source; each of them has to mean something in one source.

    What follows a ``!`` is left out. Raises ``UnknownName`` for a name that no source has, ``InputError`` for a vain
    pattern.
    """
    loaded = sources if isinstance(sources, Mapping) else load_all(sources)
    wanted = [op for op in ops or () if not op.startswith("!")]
    chosen = _meant(loaded, wanted) if wanted else {name: set(source.select()) for name, source in loaded.items()}
    unwanted = _meant(loaded, [op[1:] for op in ops or () if op.startswith("!")])
    return {name: sorted(names - unwanted[name]) for name, names in chosen.items()}


def _meant(loaded: Mapping[str, Source], ops: Iterable[str]) -> dict[str, set[str]]:
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
    return chosen


def iterate(
    chosen: Mapping[str, Sequence[str]],
    dtypes: Sequence[str] | None,
    limit_per_op: int | None,
    variants: Sequence[str] = ("default",),
    keep: Callable[[Case | Untested, str], bool] | None = None,
    loaded: Mapping[str, Source] | None = None,
) -> Iterator[Case | Untested]:
    """The cases of ``select``ed ops, source by source, each in every one of the variants.

    ``keep(entry, variant)`` says whether an entry is wanted in a variant, before it is made; ``loaded`` are the sources
    if they are loaded already.
    """
    from torchstone.conformance.variants.registry import expand

    for name, ops in chosen.items():
        if ops:
            source = loaded[name] if loaded is not None else load(name)
            yield from expand(source.iterate(ops, dtypes, limit_per_op), variants, keep)


def find_case(name: str) -> Case:
    """The case of an id, ``source:op:dtype:index`` and perhaps ``:variant``. Raises ``UnknownName``, ``InputError``."""
    from torchstone.conformance.program.case import Untested
    from torchstone.conformance.variants.registry import DEFAULT, apply

    source, op, dtype, index, variant, *rest = [*name.split(":"), DEFAULT]
    if rest not in ([], [DEFAULT]) or not index.isdigit():
        raise InputError(f'"{name}" is not a case id; they look like opinfo:softmax:float32:0')
    found = apply(load(source).case(op, dtype, int(index)), variant)
    if isinstance(found, Untested):
        raise InputError(f"{found.id} is no case: {found.reason}")
    return found
