"""The variant ``marked``: whole numbers that are no places."""

from __future__ import annotations

import pytest
import torch
from variant_cases import asked, case

from torchstone.conformance.program.case import Case
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.registry import VARIANTS


def labels(made: Case) -> torch.Tensor:
    return next(tensor for tensor in made.args if tensor.dtype == torch.int64)


def test_the_labels_of_a_row_end() -> None:
    x, target = torch.randn(4, 5), torch.randint(0, 5, (4, 5))
    changed = asked(case("torch.nn.functional.multilabel_margin_loss", x, target), "marked")
    ended = labels(changed) < 0
    assert (ended.cumsum(1).bool() & ~ended).any(), "a label follows the end"
    assert not torch.equal(changed.program(*changed.args), torch.nn.functional.multilabel_margin_loss(x, target))


def test_a_default_is_a_mark() -> None:
    changed = asked(case("torch.nn.functional.cross_entropy", torch.randn(7, 3), torch.randint(0, 3, (7,))), "marked")
    assert labels(changed).tolist().count(-100) == 2


def test_there_have_to_be_places() -> None:
    with pytest.raises(NotApplicable, match="name no places"):
        VARIANTS.load("marked").make(case("torch.add", torch.arange(4), torch.arange(4)))
    with pytest.raises(NotApplicable, match="no input of whole numbers"):
        VARIANTS.load("marked").make(case("torch.add", torch.randn(4), torch.randn(4)))
