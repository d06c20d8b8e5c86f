"""Variants share the time: what a backend says to cost more is drawn less often, and a seed gives the same programs."""

from __future__ import annotations

from torchstone.fuzz.bundles import Bundler, Told
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.generate import DRAWS
from torchstone.fuzz.generator.novelty import Novelty
from torchstone.fuzz.generator.variants import WEIGHTS, nth_case, shares

from .test_bundles import _case

COUNT = 16
COSTS = {"dynamic": 10, "draws": 50}


def test_the_time_of_a_variant_is_its_weight():
    drawn = dict(shares(COSTS))
    assert dict(shares({})) == {variant: 1000 * weight for variant, weight in WEIGHTS}
    assert {variant: n * COSTS.get(variant, 1) for variant, n in drawn.items()} == dict(shares({}))


def test_what_costs_more_is_drawn_less_often_and_depends_on_nothing_but_the_seed():
    rules = select_rules(("neg", "bernoulli"))

    def stream(costs):
        return [nth_case(3, index, rules, 1, costs=costs) for index in range(COUNT)]

    def dear(cases):
        return sum(DRAWS in case.tags for case in cases)

    free, cheap = stream({}), stream(COSTS)
    assert dear(free) > 2 * dear(cheap)
    assert [case.to_bytes() for case in cheap[:5]] == [
        nth_case(3, i, rules, 1, costs=COSTS).to_bytes() for i in range(5)
    ]
    assert [case.index for case in cheap] == list(range(COUNT))


def test_guidance_prefers_an_op_that_was_not_asked_in_the_variant():
    novelty = Novelty()
    novelty.keep([("neg", "dtype", "float32")])
    novelty.meet([("torch.neg", "variant", "default")])
    scores = []
    for variant in ("default", "dynamic"):
        novelty.variant = variant
        scores.append(novelty.score("neg", ("torch.neg", None), "float32"))
    assert scores == [1, 2]


def test_what_waits_is_taken_to_last_as_long_as_what_was_asked():
    bundler = Bundler()
    assert bundler.seconds() == 0
    for index in range(3):
        assert not list(bundler.add(_case(4 * index + 2)))
    group = next(bundler.rest())
    bundler.learn(group * 10 + group[:2], Told([], 64.0, 1))
    for case in group:
        assert not list(bundler.add(case))
    assert bundler.seconds() == 6.0
