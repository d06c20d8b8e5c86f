"""What is a view of its operand for one layout and a copy for another: right for every layout, or refused."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from torchstone import compile
from torchstone.compiler.diagnostics import GuardError, Unsupported

Make = Callable[[Tensor], Any]
ANY = torch.export.Dim.DYNAMIC

OPS: dict[str, Make] = {
    "contiguous": lambda y: y.contiguous(),
    "contiguous rows": lambda y: y.contiguous()[1:],
    "contiguous pair": lambda y: (y.contiguous(), y.contiguous().transpose(0, 1)),
    "channels_last": lambda y: y.contiguous(memory_format=torch.channels_last),
    "ravel": lambda y: y.ravel(),
    "reshape": lambda y: y.reshape(-1),
    "reshape rows": lambda y: y.reshape(2, -1)[1:],
    "reshape_as": lambda y: y.reshape_as(torch.empty(y.numel())),
    "flatten": lambda y: torch.flatten(y, 1),
    "contiguous view": lambda y: y.contiguous().view(-1),
    "movedim": lambda y: y.movedim(0, 1).contiguous(),
    "expand": lambda y: y.expand_as(y).contiguous(),
    "to": lambda y: y.to(torch.float32),
    "to contiguous": lambda y: y.to(memory_format=torch.contiguous_format),
    "to channels_last": lambda y: y.to(memory_format=torch.channels_last),
    "float channels_last": lambda y: y.float(memory_format=torch.channels_last),
    "clone": lambda y: y.clone(memory_format=torch.preserve_format),
    "aten": lambda y: torch.ops.aten.contiguous.default(y),
}
BEFORE: dict[str, Make] = {
    "whole": lambda x: x,
    "rows": lambda x: x[1:],
    "turned": lambda x: x.transpose(-1, -2),
    "columns": lambda x: x[..., ::2],
}
LAYOUTS: dict[str, Make] = {
    "row-major": lambda x: x.clone(),
    "turned": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "gaps": lambda x: torch.stack((x, x), -1)[..., 0],
    "channels_last": lambda x: x.contiguous(memory_format=torch.channels_last),
}


def images() -> Tensor:
    return torch.arange(1.0, 481.0).reshape(4, 3, 8, 5)


def told(program: Make, x: Tensor) -> list[Any]:
    """What argument and results hold after the call, and after a write to each of them in turn."""
    tensors = [x, *(leaf for leaf in pytree.tree_leaves(program(x)) if isinstance(leaf, Tensor))]
    seen = [[t.clone() for t in tensors]]
    for tensor in tensors:
        tensor.mul_(2)
        seen.append([t.clone() for t in tensors])
    return seen


def check(program: Make, compiled_for: str, dynamic: bool) -> int:
    """Assert that calls of every layout are right or refused; return how many were run."""
    shapes = ({0: ANY, 1: ANY, 2: ANY, 3: ANY},) if dynamic else None
    try:
        executable = compile(program, (LAYOUTS[compiled_for](images()),), "evaluator", dynamic_shapes=shapes)
    except Unsupported:
        return 0
    ran = 0
    for name, lay in LAYOUTS.items():
        try:
            got = told(executable, lay(images()))
        except GuardError:
            assert name != compiled_for
            continue
        for one, other in zip(told(program, lay(images())), got, strict=True):
            assert all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(one, other, strict=True)), name
        ran += 1
    return ran


# A dynamic capture takes far longer: the suite asks one op of each kind, the long tests ask all.
KINDS = ("contiguous", "reshape", "to channels_last")
WAYS = ("contiguous pair", "flatten", "movedim", "expand", "clone", "aten")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("op", "dynamic"),
    [
        pytest.param(op, dynamic, marks=pytest.mark.torture if dynamic and op not in KINDS + WAYS else ())
        for op, dynamic in itertools.product(OPS, (False, True))
    ],
)
def test_results(op: str, dynamic: bool) -> None:
    for before, lay in itertools.product(BEFORE.values(), ("row-major",) if dynamic else LAYOUTS):
        assert check(lambda x, before=before: OPS[op](before(x)), lay, dynamic) > 0


WRITES: dict[str, Callable[[Tensor, Make], Any]] = {
    "result": lambda x, op: (op(x).zero_(), x * 2)[1],
    "argument": lambda x, op: (y := op(x), x.zero_(), y * 2)[2],
    "computed": lambda x, op: (y := x + 1, op(y).zero_(), y * 2)[2],
    "computed after": lambda x, op: (y := x + 1, z := op(y), y.zero_(), z * 2)[3],
    "row": lambda x, op: (y := op(x), torch.relu_(y[0].neg_()), x.sum(0))[2],
}


@pytest.mark.few(3)
@pytest.mark.parametrize("op", [op for op in OPS if "pair" not in op])
def test_writes(op: str) -> None:
    for write, lay in itertools.product(WRITES.values(), ("row-major", "turned")):
        assert check(lambda x, write=write: write(x, OPS[op]), lay, dynamic=False) > 0


@pytest.mark.torture
@pytest.mark.parametrize(
    "op", [op if op in KINDS else pytest.param(op, marks=pytest.mark.torture) for op in OPS if "pair" not in op]
)
def test_writes_at_any_size(op: str) -> None:
    ran = [check(lambda x, w=write: w(x, OPS[op]), "row-major", dynamic=True) for write in WRITES.values()]
    assert any(ran), "all is refused: nothing is tried"


@pytest.mark.few(2)
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_size_decides_what_is_written(rows: int) -> None:
    def program(x: Tensor) -> Tensor:
        x.t().reshape(-1).zero_()
        return x * 2

    numbers = torch.arange(1.0, 25.0).reshape(4, 6)
    executable = compile(program, (numbers,), "evaluator", dynamic_shapes=({0: torch.export.Dim("n", min=1)},))
    x = torch.ones(rows, 6)
    try:
        got = executable(x.clone())
    except GuardError:
        assert rows == 1
    else:
        assert torch.equal(got, program(x.clone()))


def test_what_nobody_can_tell_is_not_refused() -> None:
    for program in (lambda x: x.contiguous() * 2, lambda x: (x + 1).contiguous(), lambda x: x.relu().flatten()):
        for dynamic in (False, True):
            assert check(program, "row-major", dynamic) == len(LAYOUTS)


def resized(x: Tensor) -> Any:
    y = x + 1
    z = y.view(-1)
    y.resize_(2, 3)
    y.zero_()
    return z, y


def resized_as(x: Tensor) -> Any:
    y = x + 1
    z = y[1:]
    y.resize_as_(x[0])
    return z, y


def grown(x: Tensor) -> Any:
    y = x + 1
    z = y.view(-1)
    y.resize_(9, 8, 8, 5)
    y.zero_()
    return z


def moved(x: Tensor) -> Any:
    y = x + 1
    z = y[1:]
    y.set_(x * 2)
    y.zero_()
    return z, y


def other_data(x: Tensor) -> Any:
    y = x + 1
    z = y[1:]
    y.data = x * 2
    y.zero_()
    return z, y


def resized_by_out(x: Tensor) -> Any:
    y = x + 1
    z = y.view(-1)
    torch.add(x[:1], 1, out=y)
    return z, y


def without_memory(x: Tensor) -> Any:
    y = x + 1
    z = y[1:]
    y.untyped_storage().resize_(y.untyped_storage().nbytes())
    return z


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    "program", [resized, resized_as, grown, moved, other_data, resized_by_out, without_memory], ids=lambda p: p.__name__
)
def test_a_tensor_that_leaves_its_views(program: Make, dynamic: bool) -> None:
    shapes = ({0: ANY},) if dynamic else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # an out= of another size
        try:
            executable = compile(program, (images(),), "evaluator", dynamic_shapes=shapes)
        except Unsupported as error:
            assert f"in {program.__name__}" in error.where
            return
        wanted, got = told(program, images()), told(executable, images())
    for one, other in zip(wanted, got, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def alone(x: Tensor) -> Tensor:
    y = x + 1
    z = y.view(-1)
    del z
    y.resize_(2, 3)
    return y.mul_(2)


def elsewhere(x: Tensor) -> Tensor:
    y = x + 1
    y.set_(x[1:])
    return y.zero_()


def into_nothing(x: Tensor) -> Tensor:
    y = torch.empty(0)
    return torch.add(x, 1, out=y)


@pytest.mark.parametrize("program", [alone, elsewhere, into_nothing])
def test_a_tensor_without_views_may_change_its_size(program: Make) -> None:
    wanted, got = told(program, images()), told(compile(program, (images(),), "evaluator"), images())
    for one, other in zip(wanted, got, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
