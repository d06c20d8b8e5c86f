"""Writes to elements that the same op reads for other elements, whose order PyTorch leaves open, are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone import compile as compiled
from torchstone.compiler.diagnostics import Unsupported

SHIFTED = {
    "copied": lambda x: x[:, 1:].copy_(x[:, :-1]),
    "assigned": lambda x: x.__setitem__((slice(None), slice(1, None)), x[:, :-1]),
    "added": lambda x: x[:, 1:].add_(x[:, :-1]),
    "named": lambda x: torch.add(x[:, :-1], 1, out=x[:, 1:]),
    "one column for all": lambda x: x.div_(x[:, :1]),
    "the last column for all": lambda x: x.div_(x[:, -1:]),
    "transposed": lambda x: x[:, :3].copy_(x[:, :3].mT),
    "halves by their wholes": lambda x: x.view(torch.int16)[:, 1:5].copy_(x.view(torch.int32)),
    "wholes by their halves": lambda x: x.view(torch.int32)[:, 1:].copy_(x.view(torch.int16)[:, :3]),
    "of a list": lambda x: torch._foreach_add_([x[:, 1:]], [x[:, :-1]]),
}
APART = {
    "itself": lambda x: x.mul_(x),
    "itself by another name": lambda x: x.mul_(x[:]),
    "the other half": lambda x: x[:, :2].sub_(x[:, 2:]),
    "every other column": lambda x: x[:, ::2].sub_(x[:, 1::2]),
    "one column for the others": lambda x: x[:, 1:].div_(x[:, :1]),
    "its own bits": lambda x: x.view(torch.int32).copy_(x),
    "halves by other wholes": lambda x: x.view(torch.int16)[:, :2].copy_(x.view(torch.int32)[:, 2:]),
    "a copy": lambda x: x[:, 1:].add_(x[:, :-1].clone()),
}


def written(change: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def program(x: torch.Tensor) -> torch.Tensor:
        x = x + 1
        change(x)
        return x

    return program


def options(dynamic: bool) -> dict[str, Any]:
    return {"dynamic_shapes": ({0: torch.export.Dim.AUTO},)} if dynamic else {}


@pytest.mark.few(5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", SHIFTED)
def test_elements_read_for_others_are_not_written_to(name: str, dynamic: bool) -> None:
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    with pytest.raises(Unsupported, match="clone what is read"):
        compiled(written(SHIFTED[name]), (x,), **options(dynamic))


@pytest.mark.few(5)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", APART)
def test_other_writes_to_shared_memory_are_taken(name: str, dynamic: bool) -> None:
    x = torch.arange(1.0, 13.0).reshape(3, 4)
    program = written(APART[name])
    assert torch.equal(compiled(program, (x,), **options(dynamic))(x), program(x))


def test_padding_around_more_than_is_left_is_refused() -> None:
    """It copies the first elements behind the last, and reads what it has just written there."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(x, (-1, 3), "circular")

    with pytest.raises(Unsupported, match="clone what is read"):
        compiled(program, (torch.ones(2, 3, 3),))
