"""Trying syntactic mutants, each in a fork of a warm process, on the cases that run the mutated line."""

from __future__ import annotations

import ast
import itertools
import multiprocessing
import signal
import time
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from torchstone.compiler._torch.pytrees import tree_map_only
from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.execution.verdict import CORRECT, Outcome, Verdict
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.application import LiveCode, NotApplicable, import_all
from torchstone.conformance.mutants.syntactic.mutation import Mutation
from torchstone.conformance.program.case import Case
from torchstone.conformance.runner.worker import preload_decompositions
from torchstone.conformance.sources import iterate, load
from torchstone.conformance.sources.names import OF_OPS
from torchstone.conformance.variants.apply import expand
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.fuzz.selftrial.cases import programs_of
from torchstone.fuzz.selftrial.forked import ForkedTrial
from torchstone.fuzz.selftrial.line_map import LineMap, line_map
from torchstone.fuzz.selftrial.mutation_results import MutationResult
from torchstone.fuzz.selftrial.reaching_cases import Effort, reaching_cases, reaching_ids

TOLD = CORRECT | {Outcome.UNSUPPORTED, Outcome.ILL_CONDITIONED}
"""Outcomes of a case that the compiler without a mutation does not fail."""

WARM_UP = ("add", "sum", "softmax", "index_select")


class SyntacticTrial:
    """Tries mutations of one target's code one after the other.

    A context manager: Python's threads and torch's are left as they were found.
    """

    def __init__(self, lines: LineMap, target: str = "linalg", effort: Effort | None = None, timeout: float = 20.0):
        self.target, self.lines, self.effort, self.timeout = target, lines, effort or Effort(), timeout
        self.texts = population.sources(target)
        self._right: dict[str, Outcome] = {}

    def __enter__(self) -> SyntacticTrial:
        self._threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self._backend = load_backend(self.target)
        import_all()
        preload_decompositions()
        warm_up(self._backend)
        self._live = LiveCode()
        return self

    def __exit__(self, *exc: object) -> None:
        torch.set_num_threads(self._threads)

    def try_mutation(self, mutation: Mutation) -> MutationResult:
        """Return what became of a mutation. HarnessError when no fork can begin."""
        started = time.perf_counter()
        text = self.texts[mutation.path]
        reaching, near = reaching_ids(self.lines, mutation, functions_around(text, mutation))
        sampled = (op for source, op, *_ in (name.split(":") for name in near) if source in OF_OPS)
        ops = list(dict.fromkeys((*ops_named(text, mutation), *sampled)))
        trial = ForkedTrial(
            self._backend,
            lambda reached: self._live.mutated(mutation, text, reached),
            lambda: reaching_cases(reaching, ops, self.effort, near),
            self._is_open,
            self.timeout,
            self.effort.patience,
            every=mutation.path.startswith("runtime/"),  # a later call may be the first to run it
        )
        found = next((row for row in trial if self._is_found(*row)), None) if ops or reaching else None
        before, after = mutation.diff(text)
        case, verdict = found or (None, None)
        return MutationResult(
            mutation.fingerprint, mutation.path, mutation.line, mutation.function, mutation.operator, before, after,
            ops=ops[: self.effort.ops], covered=len(reaching),
            tried=trial.tried, reached=trial.reached, seconds=round(time.perf_counter() - started, 2),
            case=case.id if case else "", by=case.source if case else "",
            outcome=str(verdict.outcome) if verdict else "", kind=verdict.kind if verdict else "",
            message=verdict.message.split("\n", 1)[0] if verdict else "",
        )  # fmt: skip

    def applicable(self, mutations: Iterable[Mutation]) -> Iterator[Mutation]:
        """Those that can be put into the running compiler: no function has the code of the others."""
        for mutation in mutations:
            try:
                self._live.swaps(mutation, self.texts[mutation.path])
            except NotApplicable:
                continue
            yield mutation

    def _is_open(self, verdict: Verdict) -> bool:
        """Whether a verdict may have found a mutant, as far as the case is known."""
        return _is_worse(self._right.get(verdict.case_id, Outcome.PASS), verdict)

    def _is_found(self, case: Case, verdict: Verdict) -> bool:
        return _is_worse(self._before(case), verdict)

    def _before(self, case: Case) -> Outcome:
        """What the compiler without a mutation makes of a case, in half the time that a fork has for it.

        In a fork as well: a case that has no end would have none here either.
        """
        if case.id not in self._right:
            alone = ForkedTrial(
                self._backend, lambda _: nullcontext(), lambda: [case], lambda _: True, self.timeout / 2, every=True
            )
            found = [verdict.outcome for _, verdict in alone]
            self._right[case.id] = found[0] if found else Outcome.UNTESTED
        return self._right[case.id]


def warm_up(backend: Any) -> None:
    """Have imported and made, before there are forks, what most cases need: a fork keeps none of it for others."""
    samples = [case for case in iterate({"opinfo": list(WARM_UP)}, ["float32", "int64"], 1) if isinstance(case, Case)]
    varied = expand(samples[:1], tuple(VARIANTS.rows))
    for entry in (*samples, *varied, *iterate({"errors": ["index_select"]}, ["float32"], 1), *programs_of(["add"], 2)):
        if isinstance(entry, Case):
            run_case(entry, backend)
            doubled: Any = _Doubled(backend)
            run_case(entry, doubled)


class _Doubled:
    """A backend that gives other numbers than the one it stands for: to have the oracle at work."""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def compile(self, program: Any, args: Any) -> Any:
        compiled = self._backend.compile(program, args)
        return lambda *args: tree_map_only(torch.Tensor, lambda x: x + x, compiled(*args))


def _is_worse(before: Outcome, verdict: Verdict) -> bool:
    """Whether a verdict fails where none did, or is not the compiler's own where it was.

    Of the parts of one program some may be refused: those that are not were right. A fault of the harness says nothing.
    """
    if verdict.failed:
        return verdict.outcome is not Outcome.HARNESS_ERROR and before in TOLD
    return verdict.outcome in (Outcome.FALLBACK, Outcome.UNSUPPORTED) and before is Outcome.PASS


def functions_around(text: str, mutation: Mutation) -> list[tuple[int, int]]:
    """The first and last lines of the functions around a mutation, and of those that name one of them, by distance."""
    return [(n.lineno, n.end_lineno or n.lineno) for n in _around(text, mutation)]


def ops_named(text: str, mutation: Mutation) -> list[str]:
    """The ops of the database that the functions around a mutation, and those that call them, are registered for."""
    operators = [
        str(value.value).split(".")[1].strip("_")
        for function in _around(text, mutation)
        for decorator in function.decorator_list
        for value in ast.walk(decorator)
        if isinstance(value, ast.Constant) and str(value.value).startswith("aten.")
    ]
    known: dict[str, list[str]] = {}
    for op in itertools.chain(*(load(source).op_names() for source in OF_OPS)):
        for name in {op.replace(".", "_"), op.rpartition(".")[2]}:
            known.setdefault(name, []).append(op)
    return [op for operator in dict.fromkeys(operators) for op in known.get(operator, ())]


def _around(text: str, mutation: Mutation) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    functions = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    around = [n for n in functions if n.lineno <= mutation.line <= (n.end_lineno or 0)]
    found = sorted(around, key=lambda n: -n.lineno)
    names = {n: {name.id for name in ast.walk(n) if isinstance(name, ast.Name)} for n in functions}
    for one in found:  # which grows: who calls those that call it comes after them
        found += [n for n in functions if n not in found and one.name in names[n]]
    return found


def run_syntactic_trials(
    mutations: Iterable[Mutation], lines: Path, jobs: int = 1, **options: Any
) -> Generator[MutationResult, None, None]:
    """Try mutations, ``jobs`` at a time in processes of their own, each as it is done.

    ``lines`` is the folder of the line map, and ``options`` are those of ``SyntacticTrial``.
    """
    mutations = list(mutations)
    if not mutations:
        return
    if jobs == 1 or len(mutations) < 2:
        with SyntacticTrial(line_map(options.get("target", "linalg"), lines), **options) as trial:
            yield from map(trial.try_mutation, mutations)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(mutations)), context, _start, (lines, options)) as pool:
        tasks = [pool.submit(_try_one, mutation) for mutation in mutations]
        try:
            for task in as_completed(tasks):
                yield task.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


_trial: SyntacticTrial


def _start(lines: Path, options: dict[str, Any]) -> None:
    global _trial
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _trial = SyntacticTrial(line_map(options.get("target", "linalg"), lines), **options).__enter__()


def _try_one(mutation: Mutation) -> MutationResult:
    return _trial.try_mutation(mutation)
