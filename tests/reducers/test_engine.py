"""The engine by itself, on lists of integers: properties that every reduction has whatever is being reduced."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchstone.reducers.engine import Ahead, Budget, NotInteresting, reduce, search
from torchstone.reducers.problem import Pass, Problem

Ints = tuple[int, ...]


def _drop(value: Ints):
    at = 0
    while at < len(value):
        candidate = value[:at] + value[at + 1 :]
        if (yield candidate):
            value = candidate
        else:
            at += 1


def _lower(value: Ints):
    for at in range(len(value)):
        for smaller in range(value[at]):
            candidate = (*value[:at], smaller, *value[at + 1 :])
            if (yield candidate):
                value = candidate
                break


def _grow(value: Ints):
    yield (*value, 0)


PASSES = (Pass("grow", _grow), Pass("drop", _drop), Pass("lower", _lower))


def _problem(initial: Ints, interesting) -> Problem[Ints]:
    return Problem(initial, interesting, size=lambda v: (len(v), v), content=lambda v: repr(v).encode())


def _arbitrary(salt: int):
    """A predicate with no structure at all, certainly not a monotone one."""
    return lambda value: hash((salt, value)) % 3 == 0


values = st.lists(st.integers(0, 9), max_size=8).map(tuple)
salts = st.integers(0, 10**6)


def test_finds_the_exact_minimum():
    found = reduce(_problem((9, 3, 8, 1), lambda v: any(x >= 5 for x in v)), PASSES)
    assert found.value == (5,)
    assert found.complete


def test_runs_passes_until_none_of_them_helps():
    # 7 can only be lowered after the 1 in front of it is gone, and dropping runs before lowering.
    found = reduce(_problem((1, 7, 7), lambda v: len(v) >= 1 and (sum(v) >= 8 or v in {(7,), (2,)})), PASSES)
    assert found.value == (2,)


def test_refuses_a_start_without_the_property():
    with pytest.raises(NotInteresting, match="does not show the property"):
        reduce(_problem((1,), lambda v: False), PASSES)


def test_an_invalid_value_is_never_tried():
    tried = []
    problem = Problem(
        (3, 3),
        lambda v: bool(tried.append(v)) or True,
        lambda v: (len(v), v),
        lambda v: repr(v).encode(),
        lambda v: len(v) > 0,
    )
    assert reduce(problem, PASSES).value == (0,)
    assert () not in tried


@given(values, salts)
def test_the_result_has_the_property_and_is_no_larger(initial, salt):
    problem = _problem(initial, _arbitrary(salt))
    if not problem.interesting(initial):
        return
    found = reduce(problem, PASSES)
    assert problem.interesting(found.value)
    assert problem.size(found.value) <= problem.size(initial)
    sizes = [problem.size(initial), *(step.size for step in found.steps)]
    assert all(after < before for before, after in itertools.pairwise(sizes))


@given(values, salts, st.integers(1, 40), st.lists(values, max_size=30))
def test_what_the_cache_holds_changes_nothing(initial, salt, trials, known):
    problem = _problem(initial, _arbitrary(salt))
    if not problem.interesting(initial):
        return
    cold = reduce(problem, PASSES, Budget(trials))
    warm_cache = {problem.key(value): problem.interesting(value) for value in known}
    warm = reduce(problem, PASSES, Budget(trials), verdicts=warm_cache)
    again = reduce(problem, PASSES, Budget(trials), verdicts=warm_cache)
    assert cold == warm == again


@given(values, salts, st.integers(1, 10))
def test_the_budget_bounds_the_questions(initial, salt, trials):
    asked = []
    predicate = _arbitrary(salt)
    if not predicate(initial):
        return
    found = reduce(_problem(initial, lambda v: asked.append(v) or predicate(v)), PASSES, Budget(trials))
    assert len(asked) == found.trials <= trials
    assert predicate(found.value)


@given(values, salts)
def test_a_complete_result_is_a_fixed_point(initial, salt):
    problem = _problem(initial, _arbitrary(salt))
    if not problem.interesting(initial):
        return
    found = reduce(problem, PASSES)
    assert found.complete
    again = reduce(_problem(found.value, problem.interesting), PASSES)
    assert again.value == found.value
    assert again.steps == ()


def test_a_spent_budget_is_said():
    assert not reduce(_problem((9,) * 8, lambda v: True), PASSES, Budget(trials=3)).complete


def test_progress_sees_every_step():
    seen = []
    found = reduce(_problem((9, 3), lambda v: sum(v) >= 5), PASSES, progress=seen.append)
    assert tuple(seen) == found.steps
    assert next(step.name for step in seen) == "drop"


def _ahead(problem: Problem[Ints], ahead: Ahead, budget: Budget):
    """A search that is answered in groups, each up to the first that is interesting; and how large the groups were."""
    searching, sizes, answers = search(problem, PASSES, budget, ahead=ahead), [], None
    while True:
        try:
            asked = next(searching) if answers is None else searching.send(answers)
        except StopIteration as end:
            return end.value, sizes
        sizes.append(len(asked))
        answers = []
        for value in asked:
            answers.append(problem.interesting(value))
            if answers[-1]:
                break


@given(values, salts, st.integers(1, 4), st.integers(0, 12), st.integers(1, 40))
def test_looking_ahead_changes_nothing_but_the_order_of_trials(initial, salt, least, more, trials):
    predicate = _arbitrary(salt)
    problem = _problem(initial, lambda value: value == initial or predicate(value))
    found, sizes = _ahead(problem, Ahead(least, least + more), Budget(trials=trials))
    assert found == reduce(problem, PASSES, Budget(trials=trials))
    assert max(sizes) <= least + more


def test_groups_grow_as_long_as_nothing_is_accepted():
    _, sizes = _ahead(_problem((3, 4, 5), lambda v: v == (3, 4, 5)), Ahead(1, 8), Budget())
    assert sizes == [1, 1, 2, 4, 8]


def test_what_is_accepted_is_handed_over_as_it_is_found():
    kept: list[Ints] = []
    problem = _problem((9, 3, 8), lambda v: any(x >= 5 for x in v))
    searching, answers = search(problem, PASSES, keep=kept.append), None
    with pytest.raises(StopIteration):
        while True:
            asked = next(searching) if answers is None else searching.send(answers)
            answers = [problem.interesting(value) for value in asked]
    assert kept == [(3, 8), (8,), (5,)]
