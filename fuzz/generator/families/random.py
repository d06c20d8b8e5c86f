"""Ops that draw random numbers. A program with one is compared by its distribution, or by eager's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torchstone.fuzz.generator.draft import Arguments, Draft
from torchstone.fuzz.generator.rules import OpRule, rules_for


def rules() -> Iterator[OpRule]:
    """Yield a rule for each op of the table.

    A probability is exact: from a last bit of it follows, now and then, another outcome.
    """
    for op, drawn in TABLE:
        for rule in rules_for(op, drawn):
            yield replace(rule, jumps=rule.jumps or op in ("bernoulli", "multinomial"))


def _dropout(ranks: tuple[int, ...]) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        return Arguments((draft.tensor(ranks=ranks),), {"p": _share(draft), "training": True})

    return draw


def _share(draft: Draft) -> float:
    return draft.choices.integer(1, 7) / 8


def _rrelu(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(),), {"lower": 0.125, "upper": draft.choices.integer(1, 4) / 4, "training": True})


def _bernoulli(draft: Draft) -> Arguments:
    if draft.choices.chance(50):
        return Arguments((draft.tensor(), _share(draft)))
    return Arguments((draft.tensor(bounds=(0.0, 1.0)),))


def _like(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(),))


def _randint_like(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(), draft.choices.integer(-3, 0), draft.choices.integer(1, 9)))


def _normal(draft: Draft) -> Arguments:
    mean = draft.tensor()
    return Arguments((mean, draft.tensor(shape=mean.shape, dtype=mean.dtype, bounds=(0.25, 4.0))))


def _multinomial(draft: Draft) -> Arguments:
    weights = draft.tensor(ranks=(1, 2), bounds=(0.25, 4.0), where=lambda value: value.tensor.numel() > 0)
    kwargs: dict[str, Any] = {"replacement": True} if draft.choices.chance(50) else {}
    return Arguments((weights, draft.choices.integer(1, max(weights.shape[-1], 1))), kwargs)


TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("nn.functional.dropout", _dropout((0, 1, 2, 3, 4))),
    ("nn.functional.dropout2d", _dropout((4,))),
    ("nn.functional.dropout3d", _dropout((5,))),
    ("nn.functional.alpha_dropout", _dropout((1, 2, 3, 4))),
    ("nn.functional.feature_alpha_dropout.with_train", _dropout((3, 4))),
    ("nn.functional.rrelu", _rrelu),
    ("bernoulli", _bernoulli),
    ("rand_like", _like),
    ("randn_like", _like),
    ("randint_like", _randint_like),
    ("normal", _normal),
    ("multinomial", _multinomial),
)
