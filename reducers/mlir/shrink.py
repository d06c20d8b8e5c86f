"""Shrink a module and its pipeline: the problem, and its passes in the order they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from torchstone.reducers.engine import Budget, Reduced, Step, reduce
from torchstone.reducers.mlir import edits, pipeline
from torchstone.reducers.mlir.pipeline import Pipeline
from torchstone.reducers.mlir.trial import Outcome, in_child, try_parse, try_pipeline
from torchstone.reducers.problem import Pass, Problem, Rewrite, remove_chunks

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Subject:
    """What is shrunk: a module's text, and the passes that run on it."""

    module: str
    pipeline: Pipeline = ()

    @property
    def size(self) -> tuple:
        """Passes first: a module that one pass fails on says more than a smaller one that ten fail on."""
        shapes = [int(number) for number in edits.lengths(self.module)]
        wide = sum(self.module.count(word) for word, _ in edits.NARROWER)
        whole = pipeline.text(self.pipeline)
        ops = edits.count_ops(self.module)
        return pipeline.passes(self.pipeline), ops, sum(shapes), wide, len(self.module) + len(whole), whole, self.module

    @property
    def content(self) -> bytes:
        return f"{pipeline.text(self.pipeline)}\n{self.module}".encode()


Make = Callable[[], str]
"""Makes the text of a module, or none."""

Question = Callable[[Subject], Outcome]
"""Tries a subject. What has to stay is the signature of what the question says of the first one."""


def shrink(
    subject: Subject,
    question: Question,
    timeout: float,
    budget: Budget | None = None,
    progress: Callable[[Step], None] | None = None,
) -> Reduced[Subject]:
    """Return the smallest subject found for which ``question`` gives the same signature. Raises NotInteresting."""
    wanted = question(subject).signature

    problem = Problem(
        subject,
        interesting=lambda value: question(value).signature == wanted,
        size=lambda value: value.size,
        content=lambda value: value.content,
    )
    return reduce(problem, _passes(timeout), budget, progress=progress)


def _passes(timeout: float) -> Sequence[Pass[Subject]]:
    rows: tuple[tuple[str, Callable[[Subject], Iterator[Make]]], ...] = (
        ("drop-results", _each(edits.DROP_RESULT)),
        ("bypass-ops", _each(edits.BYPASS)),
        ("hoist-regions", _each(edits.HOIST)),
        ("drop-arguments", _each(edits.DROP_ARGUMENTS)),
        ("shrink-dims", _shorter),
        ("simplify-attributes", _each(edits.SIMPLIFY_ATTRIBUTE)),
        ("narrow-types", lambda subject: (partial(str, text) for text in edits.narrowed(subject.module))),
    )
    return (
        Pass("drop-passes", _drop_passes),
        Pass("run-first-pass", lambda value: _run_first(value, timeout)),
        Pass("drop-ops", lambda value: _drop_ops(value, timeout)),
        *(Pass(name, _greedily(candidates, timeout)) for name, candidates in rows),
    )


def _greedily(candidates: Callable[[Subject], Iterator[Make]], timeout: float) -> Callable[[Subject], Rewrite[Subject]]:
    """Return a pass that tries each candidate once; where one is taken, it goes on among those of the new value."""

    def run(value: Subject) -> Rewrite[Subject]:
        refused, moved = 0, True
        while moved:
            moved = False
            for make in islice(candidates(value), refused, None):
                module = _made(make, timeout)
                if module and module != value.module and (yield (other := replace(value, module=module))):
                    value, moved = other, True
                    break
                refused += 1

    return run


def _made(make: Make, timeout: float) -> str:
    """Return what an edit makes, if it is a valid module; the bindings may crash over one that is not."""

    def work(tell: Callable[..., None]) -> None:
        if module := make():
            edits.parsed(module)
            tell(kind="ok", module=module)

    return in_child(work, timeout).module


def _each(edit: edits.Edit) -> Callable[[Subject], Iterator[Make]]:
    """Return the candidates of an edit at every op."""

    def candidates(value: Subject) -> Iterator[Make]:
        for at, which in edits.places(value.module, edit):
            yield partial(edits.edited, value.module, edit, at, which)

    return candidates


def _shorter(value: Subject) -> Iterator[Make]:
    for length in edits.lengths(value.module):
        shorter = sorted({1, 2, int(length) // 2} - {0, int(length)})
        for new in (str(number) for number in shorter if number < int(length)):
            for everywhere in (True, False):
                yield partial(edits.with_length, value.module, length, new, everywhere)


def _drop_passes(value: Subject) -> Rewrite[Subject]:
    """Leave out passes, as many at once as may go; then the options of what is left."""

    def without(kept: frozenset[int]) -> Subject:
        return replace(value, pipeline=pipeline.keep(value.pipeline, kept))

    kept = yield from remove_chunks(pipeline.passes(value.pipeline), without)
    value = without(kept)
    moved = True
    while moved:
        moved = False
        for shorter in pipeline.without_options(value.pipeline):
            if (yield (other := replace(value, pipeline=shorter))):
                value, moved = other, True
                break


def _run_first(value: Subject, timeout: float) -> Rewrite[Subject]:
    """Let the module be what the first pass makes of it, as long as another one follows."""
    while len(leaves := tuple(pipeline.leaves(value.pipeline))) > 1:
        first = try_pipeline(value.module, leaves[:1], timeout, text=True)
        if first.kind != "ok" or try_parse(first.module, timeout).kind != "ok":
            return
        rest = pipeline.keep(value.pipeline, frozenset(range(1, len(leaves))))
        other = Subject(first.module.strip() + "\n", rest)
        if not (yield other):
            return
        value = other


def _drop_ops(value: Subject, timeout: float) -> Rewrite[Subject]:
    """Take away ops, half of them at once, then a quarter … then each alone."""
    count = edits.count_removable(value.module)

    def without(kept: frozenset[int]) -> Subject | None:
        module = _made(partial(edits.without_ops, value.module, frozenset(range(count)) - kept), timeout)
        return replace(value, module=module) if module else None

    yield from remove_chunks(count, without)
