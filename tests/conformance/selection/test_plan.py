"""The plan of a run: how the cases of an op are chosen."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.selection.effort import Effort
from torchstone.conformance.selection.features import features, unlike
from torchstone.conformance.selection.plan import DTYPE_KINDS, SHARES, VARIANT_KINDS, OpPlan, Turns, plan_cases
from torchstone.conformance.selection.selection import select_cases
from torchstone.conformance.sources import find_case, load_all
from torchstone.conformance.variants.apply import apply
from torchstone.conformance.variants.registry import BUNDLES, DEFAULT, VARIANTS

pytestmark = pytest.mark.usefixtures("no_forks")

OPS = ["add", "sort"]


def plan_of(op: str, effort: Effort = Effort.standard) -> list[Case | Untested]:
    return list(plan_cases({"opinfo": [op]}, load_all(["opinfo"]), effort.budget, list(VARIANTS.rows)))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 60), st.text())
def test_levels_take_turns_in_proportion_to_their_weights(weights: list[int], rounds: int, key: str) -> None:
    turns = Turns({(str(at),): float(weight) for at, weight in enumerate(weights)}, key)
    for at in range(rounds):
        due = min(turns.weights, key=turns.due)
        assert at or due == ("0",)
        turns.taken[due] += 1
    for kind, weight in turns.weights.items():
        share = rounds * weight / sum(weights)
        assert abs(turns.taken[kind] - share) <= len(weights)


def test_over_many_ops_the_first_turns_are_in_proportion_to_the_weights() -> None:
    weights = {("first",): 1.0, ("dear",): 0.5, ("good",): 4.0, ("one", "other"): 2.0}
    asked: Counter[str] = Counter()
    for op in range(1000):
        turns = Turns(weights, f"op {op}")
        turns.taken["first",] = 1
        for _ in range(4):
            due = min(weights, key=turns.due)
            asked[min(due, key=lambda name, due=due, turns=turns: turns.rank(due, name))] += 1
            turns.taken[due] += 1
    shares = {"dear": 0.5, "good": 4.0, "one": 1.0, "other": 1.0}
    for name, share in shares.items():
        assert asked[name] == pytest.approx(4000 * share / 6.5, rel=0.2)


@pytest.mark.torture
@pytest.mark.parametrize("op", OPS)
def test_a_plan_is_the_same_every_time_and_its_ids_lead_back_to_its_cases(op: str) -> None:
    cases = plan_of(op)
    assert [case.id for case in cases] == [case.id for case in plan_of(op)]
    assert len({case.id for case in cases}) == len(cases) == Effort.standard.budget
    for case in cases[:6]:
        assert isinstance(case, Case)
        found = find_case(case.id)
        assert repr(found.program) == repr(case.program), "NaN is no number's equal"
        assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(found.args, case.args, strict=True))


@pytest.mark.torture
def test_more_effort_asks_the_same_first_and_meets_every_kind_of_variant_and_of_dtype() -> None:
    quick, standard, thorough = (plan_of("softmax", effort) for effort in Effort)
    ids = [case.id for case in thorough]
    assert ids[: len(standard)] == [case.id for case in standard] and ids[: len(quick)] == [case.id for case in quick]
    source = load_all(["opinfo"])["opinfo"]
    met = {str(tensor.dtype).removeprefix("torch.") for case in thorough for tensor in case.args}  # also in ``dtypes``
    assert all(met & set(names) for _, names in DTYPE_KINDS if set(names) & set(source.dtypes_of("softmax")))
    samples = [entry for entry in source.iterate(["softmax"], ["float32"], None) if isinstance(entry, Case)]
    largest = max(samples, key=lambda sample: sum(tensor.numel() for tensor in sample.args))
    applicable = {name for name in VARIANTS.rows if isinstance(apply(largest, name), Case)}
    asked = {case.variant for case in thorough}
    asked |= {part for name in asked for part in BUNDLES.get(name, ())}
    assert all(asked & set(names) for _, names in VARIANT_KINDS if applicable & set(names))
    assert len(asked) > 0.8 * len(applicable)


def test_each_variant_is_of_one_kind_and_programs_are_asked_in_few() -> None:
    named = [name for _, names in VARIANT_KINDS for name in names]
    assert sorted(named) == sorted(VARIANTS.rows)
    assert all(share.variants is None or share.variants < set(VARIANTS.rows) for share in SHARES.values())
    found = list(plan_cases({"programs": ["cast+cast"]}, load_all(["programs"]), 30, list(VARIANTS.rows)))
    share = SHARES["programs"]
    assert len(found) == round(30 * share.budget) and {case.variant for case in found} <= (share.variants or set())


def _samples(*literals: object) -> list[Case | Untested]:
    x = torch.ones(2, 3)
    return [
        Case(Program(("x",), (Call("torch.sum", (Ref("x"), literal), {}, "y"),), Ref("y")), {"x": x}, "test", "sum",
             "float32", index=index)
        for index, literal in enumerate(literals)
    ]  # fmt: skip


def test_the_sample_with_the_most_that_is_new_comes_first() -> None:
    samples = _samples(0, 0, 0, 1, -1, [0, 1])
    plan = OpPlan("sum", ["float32"], ["default"], lambda dtype: samples)
    assert {case.index for case in plan.cases(4)} == {0, 3, 4, 5}


def test_what_cannot_be_asked_is_told_once() -> None:
    nothing = [Untested("test", "sum", "float32", "no program", index) for index in range(3)]
    plan = OpPlan("sum", ["float32"], ["default", "strided"], lambda dtype: list(nothing))
    assert list(plan.cases(10)) == nothing[:1]


def test_fewer_samples_than_budget() -> None:
    samples = _samples(0, 1)
    plan = OpPlan("sum", ["float32"], ["default", "long"], lambda dtype: samples)
    ids = [entry.id for entry in plan.cases(50)]
    assert len(ids) == len(set(ids)) == 4


def test_features_tell_arguments_apart_and_nothing_else() -> None:
    zero, again, one, listed = (features(case) for case in _samples(0, 0, 1, [0]) if isinstance(case, Case))
    assert zero == again and zero != one and zero != listed


def test_unlike_cases_begin_with_the_first_and_go_on_with_what_is_new() -> None:
    samples = [case for case in _samples(0, 0, 1, 0, -1, [0]) if isinstance(case, Case)]
    assert {case.index for case in unlike(samples, 4)} == {0, 2, 4, 5}
    assert [case.index for case in unlike(samples, 1)] == [0]
    assert sorted(case.index for case in unlike(samples, 9)) == [0, 1, 2, 3, 4, 5]
    assert unlike([], 3) == []


def test_a_run_asks_the_plan_within_the_dtypes_and_variants_given() -> None:
    def ids(**options: object) -> Iterator[str]:
        base = {"sources": ["opinfo"], "ops": ["add"], "variants": list(VARIANTS.rows), "effort": "quick"}
        return iter([entry.id for entry in select_cases(base | options).entries()])

    assert list(ids()) == [case.id for case in plan_of("add", Effort.quick)]
    assert {name.split(":")[2] for name in ids(dtypes=["int64", "bool"])} == {"int64", "bool"}
    assert {name.split(":")[4] for name in ids(variants=["strided"])} == {"strided"}


def test_a_shard_of_a_plan_has_whole_ops() -> None:
    ops = ["neg", "abs", "exp", "sin", "cos"]
    base = {"sources": ["opinfo"], "ops": ops, "variants": [DEFAULT], "effort": "quick"}
    shards = [[entry.id for entry in select_cases(base | {"shard": f"{number}/3"}).entries()] for number in (1, 2, 3)]
    assert sorted(itertools.chain(*shards)) == sorted(entry.id for entry in select_cases(base).entries())
    met = [{name.split(":")[1] for name in shard} for shard in shards]
    assert sum(map(len, met)) == len(set().union(*met)) == len(ops)
