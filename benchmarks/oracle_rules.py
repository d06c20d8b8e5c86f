"""Which rules of the oracle earn their place: each is switched off alone, and the verdicts that change are counted.

    python benchmarks/oracle_rules.py controls --ops 30 --variant default --variant special --out rules.jsonl
    python benchmarks/oracle_rules.py backend:linalg --ops 30
    python benchmarks/oracle_rules.py gaps --seeds 0 40
    python benchmarks/oracle_rules.py ill-conditioned --seeds 0 40
    python benchmarks/oracle_rules.py table rules.jsonl other.jsonl

Every judgement is made once with all rules, which notes the rules that had something to say, and once more without each
of these. A rule that gives room changes verdicts towards ``mismatch`` when it is off; one that takes room away changes
them towards ``pass``. Of gap functions, a ``mismatch`` that goes is a wrong number that the rule finds.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import json
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from torchstone.conformance.backends import load as load_backend
from torchstone.conformance.controls import trial
from torchstone.conformance.execution import repeatability, run_case
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle import compare, numbers
from torchstone.conformance.oracle.overflow import model
from torchstone.conformance.oracle.perturbation import conditioning, decompositions, search
from torchstone.conformance.oracle.perturbation.rounding import RandomRounding
from torchstone.conformance.oracle.random import compare as randomness
from torchstone.conformance.oracle.reference.dtype_defaults import RecordOperands
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.oracle.tolerances import tolerance
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import iterate
from torchstone.conformance.variants import rewritten

JUDGE = compare.judge


@dataclass(frozen=True)
class Rule:
    """A rule: where its function or property is, and what stands in for it when it is off."""

    name: str
    owner: Any
    attribute: str
    off: Callable[[Callable[..., Any]], Callable[..., Any]]
    place: int | None = None
    """Of a table of functions: which of them."""

    def get(self) -> Any:
        """What is there."""
        found = vars(self.owner)[self.attribute]
        return found if self.place is None else found[self.place]

    def put(self, value: Any) -> None:
        """Put something in its place."""
        if self.place is not None:
            table = list(vars(self.owner)[self.attribute])
            table[self.place] = value
            value = tuple(table)
        setattr(self.owner, self.attribute, value)
        if hasattr(value, "__set_name__"):
            value.__set_name__(self.owner, self.attribute)

    @contextlib.contextmanager
    def replaced(self, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
        """Something else in the place of the rule's function, made of it."""
        before = self.get()
        is_property = isinstance(before, functools.cached_property)
        self.put(functools.cached_property(by(before.func)) if is_property else by(before))
        decompositions.decompositions.cache_clear()
        try:
            yield
        finally:
            self.put(before)
            decompositions.decompositions.cache_clear()


def never(function: Callable[..., Any]) -> Callable[..., Any]:
    """Says no of each element, whatever the function says."""

    def off(*args: Any, **kwargs: Any) -> Any:
        return torch.zeros_like(function(*args, **kwargs))

    return off


def first_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves what it is given as it is."""
    return lambda first, *args, **kwargs: first


def second_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves what it is given as it is, of a method."""
    return lambda owner, first, *args, **kwargs: first


def always(value: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Gives one value."""
    return lambda function: lambda *args, **kwargs: value


def of_norm(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds nothing to a matrix."""
    return lambda owner, matrix, ulps: torch.zeros_like(matrix)


def fourth_argument(function: Callable[..., Any]) -> Callable[..., Any]:
    """Leaves the result of an accumulation as it is."""
    return lambda owner, func, args, kwargs, out: out


def without_departures(function: Callable[..., Any]) -> Callable[..., Any]:
    """The tolerance of the dtype alone."""
    return lambda dtype, targets=(): function(dtype)


RULES: tuple[Rule, ...] = (
    Rule("parts are judged one by one", compare, "parts_of", always([])),
    Rule("one rounding", numbers, "_single_rounding", always(None)),
    Rule("signs of zeros and NaN", numbers, "_signs", always(None)),
    Rule("room for rounding", numbers, "with_spread", first_argument),
    Rule("room where results are smooth", numbers, "refine_spread", first_argument),
    Rule("eager's error nearby", numbers, "eager_nearby", first_argument),
    Rule("eager's defaults in float64", Referee, "operands", always(())),
    Rule("SciPy's numbers", numbers, "scipy_reference", always(None)),
    Rule("16-bit numbers computed in float32", numbers, "as_in_float32", never),
    Rule("eager loses or makes a NaN", numbers, "nan_of_a_kernel", never),
    Rule("no further than eager", numbers, "no_further_than_eager", never),
    Rule("rounding reaches eager's error", numbers, "rounding_reaches", never),
    Rule("overflow: orders of sums and factors", Referee, "reordered_runs", always([])),
    Rule("overflow: any step, where eager is not finite", Referee, "overflowed_runs", always([])),
    Rule("overflow: float64 sums that cancel", Referee, "cancelled_runs", always([])),
    Rule("overflow: several formulas", model, "other_formulas", always([])),
    Rule("a few runs of the rounding model", Referee, "rounded_runs", always([])),
    Rule("subnormals flushed", Referee, "flushed_runs", always([])),
    Rule("eager, inputs moved by an ULP", Referee, "ulp_perturbed", always([])),
    Rule("inputs on a jump", Referee, "sub_ulp_perturbed", always([])),
    Rule("eager elsewhere in memory", Referee, "relaid_runs", always([])),
    Rule("amplified roundings, in float64", conditioning, "amplified_spread", never),
    Rule("runs on the grid of the dtype", Referee, "runs_on_grid", always([])),
    Rule("the same on a jump", Referee, "roundings_on_grid", always([])),
    Rule("beside a pole", conditioning, "beside_a_pole", never),
    Rule("between two runs, of float64", conditioning, "between_runs", never),
    Rule("search", conditioning, "attained", never),
    Rule("search: between two runs", search._Search, "_between", always(False)),
    Rule("search: density of runs", search._Search, "is_dense", never),
    Rule("programs that only select and move", Referee, "all_exact", always(False)),
    Rule("conversions out of range", compare, "undefined_elements", always((False, None))),
    Rule("ties", compare, "_right_with_ties_broken", always(False)),
    Rule("products of factors", compare, "_right_by_factors", always(False)),
    Rule("signs of NaN", compare, "_AMBIGUITIES", always(()), 0),
    Rule("signs of infinities beside NaN", compare, "_AMBIGUITIES", always(()), 1),
    Rule("products times 0", compare, "_AMBIGUITIES", always(()), 2),
    Rule("products of int8 matrices", compare, "_AMBIGUITIES", always(()), 3),
    Rule("signs and phases of vectors", compare, "_AMBIGUITIES", always(()), 5),
    Rule("signs of eager's factorizations", Referee, "factorizations", always([])),
    Rule("recurrences of polynomials", decompositions, "recurrences", always({})),
    Rule("zeros of oscillating functions", decompositions, "oscillating_ops", always({})),
    Rule("errors by the norm of a matrix", RandomRounding, "_of_norm", of_norm),
    Rule("partial products that are subnormal", RandomRounding, "_underflowed", fourth_argument),
    Rule("departures from the tolerances", numbers, "tolerance", without_departures),
)
"""The rules that can be switched off alone. Structure, ULPs and the float64 run are what they are exceptions of."""


def _tells(rule: Rule, result: Any, args: tuple[Any, ...]) -> bool:
    """Whether what a rule gave says anything. Must not raise: a decomposition that raises is left out."""
    if isinstance(result, Tensor):
        return bool((result != 0).any())
    if rule.attribute == "tolerance":
        return bool(result != tolerance(args[0]))
    if rule.attribute == "parts_of":
        return len(result) > 1
    if isinstance(result, tuple):
        return result[0] is not False
    nothing = result is None or result is False or (isinstance(result, list | dict | RecordOperands) and not result)
    return not nothing and not any(result is given for given in args[:1])


@contextlib.contextmanager
def noted(said: set[str]) -> Iterator[None]:
    """Notes the rules that have something to say."""

    def noting(rule: Rule) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def around(function: Callable[..., Any]) -> Callable[..., Any]:
            def note(*args: Any, **kwargs: Any) -> Any:
                result = function(*args, **kwargs)
                result = list(result) if rule.place is not None else result
                if _tells(rule, result, args):
                    said.add(rule.name)
                return result

            return note

        return around

    with contextlib.ExitStack() as stack:
        for rule in RULES:
            stack.enter_context(rule.replaced(noting(rule)))
        yield


def _named(rule: Rule, program: Any) -> bool:
    """Whether a rule of decompositions, which are asked for once, has to do with the calls of a program."""
    words = {"recurrences": ("polynomial",), "oscillating_ops": ("bessel", "airy")}.get(rule.attribute)
    return words is None or any(word in call.target for call in program.calls for word in words)


def _without(rule: Rule, referee: Referee) -> Referee | None:
    """A referee that has the runs of another, as far as a rule has no part in them."""
    if rule.owner in (RandomRounding, decompositions, model):
        return None
    other = copy.copy(referee)
    other.__dict__.pop(rule.attribute, None)
    return None if rule.attribute == "factorizations" else other


class Ablation:
    """Stands in the place of ``judge``, and judges again without each rule."""

    def __init__(self, source: str, out: Any) -> None:
        self.source, self.out = source, out
        self.judged = 0
        self.what = ""

    def judge(
        self,
        program: Any,
        args: Any,
        expected: Any,
        actual: Any,
        *,
        seed: int | None = None,
        referee: Referee | None = None,
    ) -> Any:
        """The finding with all rules."""
        referee = referee or Referee(program, args, seed=seed)
        said: set[str] = referee.__dict__.setdefault("said", set())  # what it has made it is not asked for again
        with noted(said):
            finding = JUDGE(program, args, expected, actual, seed=seed, referee=referee)
        self.judged += 1
        for rule in RULES:
            if rule.name not in said or not _named(rule, program):
                continue
            try:
                with rule.replaced(rule.off):
                    runs = _without(rule, referee)
                    after = str(JUDGE(program, args, expected, actual, seed=seed, referee=runs).outcome)
            except Exception as error:
                after = f"error: {type(error).__name__}: {error}"[:100]
            self._write(rule=rule.name, before=str(finding.outcome), after=after)
        return finding

    def _write(self, **row: Any) -> None:
        self.out.write(json.dumps({"source": self.source, "what": self.what, **row}) + "\n")
        self.out.flush()

    def finish(self) -> None:
        """The number of judgements, as the last row."""
        self._write(judged=self.judged)


@contextlib.contextmanager
def in_place(ablation: Ablation) -> Iterator[None]:
    """The ablation wherever the harness judges."""
    places = (run_case, repeatability, rewritten, randomness)
    for module in places:
        module.__dict__["judge"] = ablation.judge
    try:
        yield
    finally:
        for module in places:
            module.__dict__["judge"] = JUDGE


def cases(ops: int, variants: list[str], dtypes: list[str], limit: int) -> Iterator[Case]:
    """The first samples of ops that the trial of controls would choose."""
    for op in trial.choose_ops(ops):
        for case in iterate({trial.SOURCE: [op]}, dtypes, limit, variants):
            if isinstance(case, Case):
                yield case


def generated(kind: str, first: int, last: int, ablation: Ablation) -> None:
    """Judge the answers in gaps of generated functions, or other right evaluations of ill-conditioned ones."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.conformance.oracle.generated import sweep

    with mock.patch.object(sweep, "judge", ablation.judge):
        for seed in range(first, last):
            ablation.what = str(seed)
            if kind == "gaps":
                list(sweep.absolved(seed, 2))
            else:
                case = sweep.ill_conditioned(seed)
                list(sweep.accused(case.program, case.inputs, seed))


def table(paths: list[str]) -> None:
    """The table of what changed, in Markdown: by rule and source, what verdicts became."""
    rows = [json.loads(line) for path in paths for line in Path(path).read_text().splitlines()]
    sources = list(dict.fromkeys(row["source"] for row in rows))
    judged = {source: sum(row.get("judged", 0) for row in rows if row["source"] == source) for source in sources}
    print("| rule | " + " | ".join(f"{source} ({judged[source]})" for source in sources) + " |")
    print("| --- |" + " --- |" * len(sources))
    for rule in RULES:
        cells = []
        for source in sources:
            found = [row for row in rows if row["source"] == source and row.get("rule") == rule.name]
            changed = Counter(
                f"{row['before']} → {row['after'].split(':')[0]}" for row in found if row["before"] != row["after"]
            )
            shown = ", ".join(f"{count} {change}" for change, count in changed.most_common())
            cells.append(shown or (f"none of {len(found)}" if found else ""))
        print(f"| {rule.name} | " + " | ".join(cells) + " |")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--out", default="rules.jsonl")
    parser.add_argument("--ops", type=int, default=30)
    parser.add_argument("--limit", type=int, default=1)
    parser.add_argument("--variant", action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--seeds", type=int, nargs=2, default=(0, 40))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after so many")
    given = parser.parse_args()
    if given.source == "table":
        table(given.paths)
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    started = time.monotonic()
    with open(given.out, "a") as out:
        ablation = Ablation(given.source, out)
        if given.source in ("gaps", "ill-conditioned"):
            generated(given.source, *given.seeds, ablation)
        with in_place(ablation):
            name = given.source.removeprefix("backend:")
            backend = load_backend(name) if name != given.source else None
            found = cases(given.ops, given.variant or ["default"], given.dtype or ["float32"], given.limit)
            order = list(found) if backend is not None or given.source == "controls" else []
            random.Random(0).shuffle(order)
            for case in order:
                ablation.what = case.id
                if time.monotonic() - started > given.seconds:
                    break
                asked = trial.try_case(case) if backend is None else [(name, run_case.run_case(case, backend))]
                for _, verdict in asked:
                    if verdict.outcome is Outcome.HARNESS_ERROR:  # which counts as nothing that was judged
                        raise SystemExit(f"{case.id}: {verdict.message}")
        ablation.finish()


if __name__ == "__main__":
    main()
