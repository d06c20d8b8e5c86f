"""Where cases come from: PyTorch's databases, whole models, case files.

A source is a module, or an object, with the functions of ``Source``. Like variants, sources are found by registered
name alone: ids name them, and what a stranger's file names must not be imported because the file names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torchstone.compiler.registry import Registry
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.sources.names import keep_names, known_names, match
from torchstone.conformance.variants.registry import DEFAULT

if TYPE_CHECKING:
    from torchstone.conformance.program.case import Case, Untested

FOLDER = "corpus="
"""Before a folder of case files, the name of the source that they are."""


class Source(Protocol):
    """A source of cases: ops with samples of some dtypes, in a fixed order.

    The ``source`` of its cases is the name it is registered under. A case's id names the same bytes in every process:
    what is random is seeded by the id (``sampling.seeded``). ``case`` raises ``UnknownName`` for an op, and
    ``InputError`` for a sample, that the source does not have.
    """

    def op_names(self) -> list[str]: ...
    def dtypes_of(self, op: str) -> list[str]: ...
    def tags_of(self, op: str) -> frozenset[str]: ...
    def select(self, ops: Iterable[str] | None = None) -> list[str]: ...
    def case(self, op: str, dtype: str, index: int) -> Case: ...
    def iterate(
        self, ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
    ) -> Iterator[Case | Untested]: ...


SOURCES: Registry[Source] = Registry(
    "source",
    "torchstone.sources",
    ("op_names", "dtypes_of", "tags_of", "select", "case", "iterate"),
    {
        "opinfo": "torchstone.conformance.sources.opinfo",
        "functions": "torchstone.conformance.sources.functions",
        "modules": "torchstone.conformance.sources.modules",
        "models": "torchstone.conformance.sources.models",
        "errors": "torchstone.conformance.sources.error_inputs",
        "programs": "torchstone.conformance.sources.programs",
        "corpus": "torchstone.conformance.sources.corpus:Corpus",
        "custom": "torchstone.conformance.custom.source",
    },
    unknown=UnknownName,
    broken=InputError,
)


def load(name: str) -> Source:
    """Import a source. Raises ``UnknownName``, and ``InputError`` for a corpus that is no folder, a broken plugin."""
    if name.startswith(FOLDER):
        from torchstone.conformance.sources.corpus import Corpus

        return Corpus(name.removeprefix(FOLDER))
    return SOURCES.load(name)


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
    for name, source in loaded.items():
        keep_names(name, source.op_names())
    return _select(loaded, ops)


def check_ops(sources: Sequence[str], ops: Sequence[str] | None) -> dict[str, list[str]] | None:
    """As ``select`` where the names of all sources are known without loading one, which takes seconds; else None."""
    known = {name: known_names(name) for name in sources}
    if None in known.values():
        return None
    return _select({name: _Named(names or []) for name, names in known.items()}, ops)


class _Named(NamedTuple):
    """The names of a source that is not loaded."""

    names: list[str]

    def op_names(self) -> list[str]:
        return self.names

    def select(self, ops: Iterable[str] | None = None) -> list[str]:
        return match(ops, self.names)


def _select(loaded: Mapping[str, Any], ops: Sequence[str] | None) -> dict[str, list[str]]:
    wanted = [op for op in ops or () if not op.startswith("!")]
    chosen = _meant(loaded, wanted) if wanted else {name: set(source.select()) for name, source in loaded.items()}
    unwanted = _meant(loaded, [op[1:] for op in ops or () if op.startswith("!")])
    return {name: sorted(names - unwanted[name]) for name, names in chosen.items()}


def _meant(loaded: Mapping[str, Any], ops: Iterable[str]) -> dict[str, set[str]]:
    chosen: dict[str, set[str]] = {name: set() for name in loaded}
    for op in ops:
        found, problem = False, InputError("")
        for name, source in loaded.items():
            try:
                chosen[name].update(source.select([op]))
                found = True
            except UnknownName:
                problem = UnknownName("op", op, [known for other in loaded.values() for known in other.op_names()])
            except InputError as error:  # the first source is the one that most people mean
                problem = problem if str(problem) else error
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
    from torchstone.conformance.variants.apply import expand

    for name, ops in chosen.items():
        if ops:
            source = loaded[name] if loaded is not None else load(name)
            entries = (_checked(entry, name) for entry in source.iterate(ops, dtypes, limit_per_op))
            yield from expand(entries, variants, keep)


def _checked(entry: Case | Untested, name: str) -> Case | Untested:
    """The entry of a source, if it is called after it: the id has to lead back there."""
    called = name.partition("=")[0]
    if entry.source != called:
        raise InputError(f'source "{called}" gives the case {entry.id}: its source has to be "{called}", too')
    return entry


def find_case(name: str) -> Case:
    """The case of an id, ``source:op:dtype:index`` and perhaps ``:variant``. Raises ``UnknownName``, ``InputError``."""
    from torchstone.conformance.sources.maker import make_case

    source, op, dtype, index, variant, *rest = [*name.split(":"), DEFAULT]
    if rest not in ([], [DEFAULT]) or not index.isdigit():
        raise InputError(f'"{name}" is not a case id; they look like opinfo:softmax:float32:0')
    return make_case(load(source), op, dtype, int(index), variant)
