"""The family ``distances``: calls of ``cdist``, whose two operands are matrices of as many columns."""

from __future__ import annotations

from collections.abc import Iterator

from torchstone.fuzz.generator.draft import Arguments, Draft
from torchstone.fuzz.generator.rules import OpRule, rules_for


def rules() -> Iterator[OpRule]:
    yield from rules_for("cdist", _cdist)


def _cdist(draft: Draft) -> Arguments:
    left = draft.tensor(ranks=(2,))
    rows = draft.choices.integer(1, 5)
    right = draft.tensor(shape=(rows, left.shape[1]), dtype=left.dtype)
    return Arguments((left, right, draft.choices.pick((1.0, 2.0))))
