"""The variant ``many``: long lists of tensors."""

from __future__ import annotations

import pytest
import torch
from variant_cases import asked

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.variants.many import COUNT
from torchstone.conformance.variants.protocol import NotApplicable
from torchstone.conformance.variants.registry import VARIANTS


def of_list(target: str, *sizes: int) -> Case:
    inputs = {f"x{k}": torch.randn(size) for k, size in enumerate(sizes)}
    program = Program(tuple(inputs), (Call(target, ([Ref(name) for name in inputs],), {}, "r"),), Ref("r"))
    return Case(program, inputs, "guide", target, "float32")


def test_a_list_is_repeated() -> None:
    changed = asked(of_list("torch.cat", 2, 3), "many")
    (call,) = changed.program.calls
    assert len(call.args[0]) == COUNT and set(changed.inputs) == {"x0", "x1"}
    assert changed.program(*changed.args).shape == (17 * 2 + 16 * 3,)


def test_what_cannot_be_many() -> None:
    with pytest.raises(NotApplicable, match="too large"):
        VARIANTS.load("many").make(of_list("torch.cartesian_prod", 2, 3))
    one = Program(("x",), (Call("torch.exp", (Ref("x"),), {}, "r"),), Ref("r"))
    with pytest.raises(NotApplicable, match="no list"):
        VARIANTS.load("many").make(Case(one, {"x": torch.randn(2)}, "guide", "exp", "float32"))
