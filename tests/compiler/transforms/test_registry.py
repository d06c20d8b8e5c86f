"""Every rule is registered for an op that exists and takes that op's arguments."""

from __future__ import annotations

import inspect

import pytest

from torchstone.compiler.capture.trace.schemas import find_overload
from torchstone.compiler.transforms.expansions import EXPANSIONS
from torchstone.compiler.transforms.rules import Rules


@pytest.mark.parametrize("op", EXPANSIONS)
def test_rule_takes_the_schema(op: str) -> None:
    arguments = find_overload(op)._schema.arguments
    inspect.signature(EXPANSIONS[op].rule).bind(None, *arguments)


def test_a_second_rule_is_an_error() -> None:
    rules = Rules()
    rules.row("aten.add.Tensor", lambda b: b)
    with pytest.raises(ValueError, match=r"aten\.add\.Tensor has two rules"):
        rules.row("aten.add.Tensor", lambda b: b)
