"""The part of a script that looks at what the verdict names, and at nothing else, as the verdict did.

It looks at one element, within the bound that the verdict held it to; where there is no bound (integers, a lost sign,
a written input) the number has to be the same. What it prints has eager's number, the compiler's and the float64 run's.
A failure is one line on stderr that begins with ``wrong`` and the verdict's kind.
"""

from __future__ import annotations

import cmath
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.execution.leak import SUSPICIOUS
from torchstone.conformance.execution.verdict import Kind, Outcome, Verdict
from torchstone.conformance.oracle.random.distribution import CONSTANT
from torchstone.conformance.oracle.ulp import ulp
from torchstone.conformance.program.literals import DTYPES
from torchstone.conformance.repro.place import Place, failing_place, place_of
from torchstone.conformance.repro.results import Results
from torchstone.conformance.repro.source import python_source

HEAD = "wrong"
WARM, CALLS = 6, 20
"""Calls before memory is looked at, and calls in which it may not grow."""
DRAWS, DEVIATIONS, SEEDS = 400, 6, 64
"""Calls whose random numbers are taken together, and how many standard deviations their means may be apart."""
_FORMS = {Kind.SHAPE: "tuple({}.shape)", Kind.DTYPE: "{}.dtype", Kind.DEVICE: "{}.device"}
_FORM = "({0}.dtype, tuple({0}.shape))"
_KINDS = (Kind.VALUE, Kind.MUTATION, Kind.NONDETERMINISTIC, Kind.LATER_CALL)
_NAME = r"((?:output|input)(?:\[[^\]\n]+\])*)"
_SHARED = (
    (re.compile(rf"{_NAME} shares memory with {_NAME}, where"), "shares memory with {}"),
    (
        re.compile(rf"{_NAME} lies in the memory of {_NAME} of an earlier call"),
        "lies in the memory of {} of a call before",
    ),
    (re.compile(rf"elements of {_NAME} lie in one place in memory"), "has several elements in one place"),
)


@dataclass(frozen=True)
class Check:
    """Statements that come after the call. They read ``expected`` and ``got``, and ``expected_inputs`` and ``given``.

    ``right`` are those of a script that has found nothing wrong.
    """

    wrong: list[str]
    right: list[str] = field(default_factory=list)


def check(verdict: Verdict | None, results: Results | None) -> Check | None:
    """Return what looks at the failure of a verdict; None where it takes more than that to see it."""
    if verdict is None or verdict.outcome is not Outcome.MISMATCH or results is None:
        return None
    if verdict.kind == Kind.ALIASING:
        return _aliasing(verdict, results)
    if verdict.kind == Kind.LEAK:
        return _leak()
    if verdict.kind == Kind.DISTRIBUTION:
        return _constant() if verdict.message.startswith(CONSTANT) else _distribution(results)
    place = failing_place(verdict)
    if verdict.kind == Kind.STRUCTURE:
        leaf = "[(type(leaf).__name__, getattr(leaf, 'layout', None)) for leaf in tree_leaves({})]"
        return _compared(verdict, place or Place("output"), (leaf.format("expected"), leaf.format("got")))
    sides = None if place is None else results.expressions(place)
    if place is None or sides is None:
        return None
    if verdict.kind in _KINDS and "index" in verdict.evidence:
        return _number(verdict, place, sides, results.leaf(place))
    if verdict.kind == Kind.MUTATION and "bytes" in verdict.evidence:
        one, other = (f"{side}.untyped_storage().tolist()" for side in sides)
        return _compared(verdict, place, (one, other))
    if verdict.kind in (*_FORMS, *_KINDS) and isinstance(results.leaf(place), Tensor):
        form = _FORMS.get(Kind(verdict.kind), _FORM)
        return _compared(verdict, place, (form.format(sides[0]), form.format(sides[1])))
    return None


def _compared(verdict: Verdict, place: Place, sides: tuple[str, str]) -> Check:
    """A check that two things are the same which are not numbers."""
    return Check(
        [
            f"e, g = {sides[0]}, {sides[1]}",
            "if g != e:",
            f'    raise SystemExit(f"{HEAD} {Kind(verdict.kind)}: {place}: expected {{e}}, got {{g}}")',
        ],
        [f'print(f"right: {place}: {{g}}")'],
    )


def _number(verdict: Verdict, place: Place, sides: tuple[str, str], leaf: Any) -> Check | None:
    """A check of the worst number."""
    evidence = verdict.evidence
    index = evidence["index"]
    if not isinstance(index, list) or not all(isinstance(at, int) and 0 <= at < 2**63 for at in index):
        return None
    at = f"[{', '.join(map(str, index))}]" if index else ""
    item = f"{at}.item()" if isinstance(leaf, Tensor) else ""
    if isinstance(leaf, Tensor) and leaf.layout is not torch.strided:
        item = f".to_dense(){item}"
    exact, bound = _as_number(evidence.get("float64")), _as_number(evidence.get("bound"))
    unit = _unit(evidence)
    names, values = ["e", "g"], [f"{sides[0]}{item}", f"{sides[1]}{item}"]
    told = f"{place}{at}: expected {{e!r}}, got {{g!r}}"
    if exact is not None:
        names, values = [*names, "exact"], [*values, python_source(exact)]
        told += ", float64 {exact!r}"
    if unit is not None:
        told += f", {{abs(g - e) / {unit!r}:.4g}} ULPs off"
    wanted = _as_number(evidence.get("expected"))
    same = "g == e" if wanted == wanted else "g != g"
    if evidence.get("note") == "the sign of zero":
        same = "str(g) == str(e)"
    elif evidence.get("note") == "the sign of NaN":
        names = [*names, "signs"]
        values = [*values, f"[torch.signbit(side{at}).item() for side in ({', '.join(sides)})]"]
        same = "signs[0] == signs[1]"
    elif isinstance(bound, float) and cmath.isfinite(bound):
        same += f" or abs(g - {'e' if exact is None else 'exact'}) <= {bound!r}"
    return Check(
        [
            f"{', '.join(names)} = {', '.join(values)}",
            f'told = f"{told}"',
            f"if not ({same}):",
            f'    raise SystemExit(f"{HEAD} {Kind(verdict.kind)}: {{told}}")',
        ],
        ['print(f"right: {told}")'],
    )


def _unit(evidence: dict[str, Any]) -> float | None:
    """The unit in the last place at eager's number, None where the two are not that far apart or not that near."""
    dtype, number = DTYPES.get(str(evidence.get("dtype"))), _as_number(evidence.get("expected"))
    distance = evidence.get("ulps")
    if dtype is None or number is None or not isinstance(distance, int | float) or not 0 < distance < float("inf"):
        return None
    return float(ulp(torch.tensor(abs(number), dtype=torch.float64), dtype))


def _as_number(value: Any) -> int | float | complex | None:
    """A number of a verdict's evidence, which has those as texts that JSON has none for."""
    try:
        if isinstance(value, str):
            return complex(value) if "j" in value else float(value)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    except ValueError:
        return None


def _aliasing(verdict: Verdict, results: Results) -> Check | None:
    for pattern, words in _SHARED:
        found = pattern.search(verdict.message)
        places = [place_of(name) for name in found.groups()] if found else []
        sides = [results.expressions(place) for place in places if place is not None]
        if not found or not all(sides) or len(sides) < len(places):
            continue
        shown = f"{HEAD} {Kind.ALIASING}: {places[0]} {words.format(*places[1:])}"
        got = [side[1] for side in sides if side is not None]
        wrong = [f'    raise SystemExit("{shown}")']
        if len(got) == 1:
            return Check(
                [f"if 0 in [step for step, size in zip({got[0]}.stride(), {got[0]}.shape) if size > 1]:", *wrong]
            )
        storage = ".untyped_storage().data_ptr()"
        if "earlier" in found[0]:
            again = [f"before, got = {got[1]}, compiled(*inputs())", f"if before{storage} == {got[0]}{storage}:"]
            return Check([*again, *wrong], ['print("right: memory of its own")'])
        return Check([f"if {got[0]}{storage} == {got[1]}{storage}:", *wrong], ['print("right: memory of its own")'])
    return None


def _leak() -> Check:
    """A check that later calls leave the process as large as it was."""
    return Check(
        [
            "def size():  # in pages of memory",
            '    return int(pathlib.Path("/proc/self/statm").read_text().split()[1])',
            "",
            "",
            f"for _ in range({WARM}):",
            "    compiled(*inputs())",
            "before = size()",
            f"for _ in range({CALLS}):",
            "    compiled(*inputs())",
            f"grown = (size() - before) * os.sysconf('SC_PAGESIZE') / {CALLS}",
            f"if grown > {SUSPICIOUS // 2}:",
            f'    raise SystemExit(f"{HEAD} {Kind.LEAK}: {{grown / 2**20:.1f}} MB more with each call")',
        ],
        ['print(f"right: {grown / 2**20:.1f} MB more with each call")'],
    )


def _constant() -> Check:
    """A check that numbers are others with some other seed."""
    return Check(
        [
            "drawn = []",
            f"for seed in range({SEEDS}):",
            "    torch.manual_seed(seed)",
            "    leaves = [leaf for leaf in tree_leaves(compiled(*inputs())) if isinstance(leaf, torch.Tensor)]",
            "    drawn.append(torch.cat([leaf.double().flatten().nan_to_num() for leaf in leaves]))",
            "if all(torch.equal(numbers, drawn[0]) for numbers in drawn):",
            f'    raise SystemExit(f"{HEAD} {Kind.DISTRIBUTION}: {CONSTANT}: {{drawn[0]}}")',
        ],
        ['print("right: other numbers with another seed")'],
    )


def _distribution(results: Results) -> Check:
    """A check of the means of numbers that are computed from a run, beside what chance allows.

    A run is one observation, whatever depends on what within it.
    """
    eager = "Module()" if results.flat else "program"
    return Check(
        [
            "def runs(function):",
            f"    drawn = [tree_leaves(function(*inputs())) for _ in range({DRAWS})]",
            "    tensors = [[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] for leaves in drawn]",
            "    return torch.stack([torch.cat([leaf.double().flatten() for leaf in leaves]) for leaves in tensors])",
            "",
            "",
            "def statistics(rows):",
            '    yield "share of numbers that are not finite", (~rows.isfinite()).double().mean(1)',
            "    rows = rows.nan_to_num(0.0, 0.0, 0.0)",
            "    ordered = rows.sort(1).values",
            '    yield "mean of all numbers", rows.mean(1)',
            '    yield "mean of all squares", rows.square().mean(1)',
            '    yield "least number", ordered[:, 0]',
            '    yield "largest number", ordered[:, -1]',
            '    yield "how many different numbers", 1.0 + (ordered.diff(dim=1) != 0).sum(1)',
            '    yield "sum of products of neighbours", (rows[:, 1:] * rows[:, :-1]).sum(1)',
            "",
            "",
            f"for (what, e), (_, g) in zip(statistics(runs({eager})), statistics(runs(compiled)), strict=True):",
            f"    chance = {DEVIATIONS} * ((e.var() + g.var()) / {DRAWS}) ** 0.5 + 1e-6 * e.abs().mean()",
            '    told = f"{what}, in the mean of all runs: expected {e.mean():.6g}, got {g.mean():.6g}"',
            "    if not abs(e.mean() - g.mean()) <= chance:",
            f'        raise SystemExit(f"{HEAD} {Kind.DISTRIBUTION}: {{told}}")',
        ],
        ['print(f"right: {told}")'],
    )
