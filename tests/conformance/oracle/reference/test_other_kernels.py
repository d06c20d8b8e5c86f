"""Eager's kernels give some numbers otherwise in a whole vector than one by one: either is right, of a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conformance.oracle.test_compare import compare
from tests.sampling import covering
from torchstone.conformance.oracle.equality import equal_tensors
from torchstone.conformance.oracle.reference.other_kernels import InVectors, OneByOne
from torchstone.conformance.program.program import Call, Program, Ref

NAN = float("nan")
F = torch.nn.functional
DISAGREE = ["celu", "elu", "hardshrink", "hardswish", "hardtanh", "relu6", "selu", "softshrink"]
"""Activations whose gradients at NaN are not the same in a vector and alone."""

SIZES = (1, 67)
"""One number alone, and vectors with something left at the end."""

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def gradient(name: str) -> Program:
    """A program that returns the gradient of an activation."""
    steps = (
        Call("torch.Tensor.requires_grad_", (Ref("x0"),), {}, "r0"),
        Call(f"torch.nn.functional.{name}", (Ref("r0"),), {}, "r1"),
        Call("torch.autograd.grad", ([Ref("r1")], [Ref("r0")], [Ref("x1")]), {}, "r2"),
    )
    return Program(("x0", "x1"), steps, Ref("r2"))


def by_another_kernel(program: Program, x: Tensor, g: Tensor, mode: Any) -> Tensor:
    """Eager's gradient by another kernel."""
    with mode:
        return program(x.clone(), g.clone())[0]


@pytest.mark.few(8)
@pytest.mark.parametrize(("name", "size", "dtype"), covering(DISAGREE, SIZES, DTYPES))
def test_either_kernel_is_right(name: str, size: int, dtype: torch.dtype) -> None:
    program = gradient(name)
    x, g = torch.full((size,), NAN, dtype=dtype), torch.ones(size, dtype=dtype)
    one, many = (by_another_kernel(program, x, g, mode()) for mode in (OneByOne, InVectors))
    assert not equal_tensors(one, many), "eager is of one mind now: the program says nothing"
    for answer in (one, many):
        assert compare(program, lambda x, g, answer=answer: [answer], x, g).outcome in ("pass", "ill-conditioned")


@pytest.mark.parametrize("mode", [OneByOne, InVectors])
def test_what_eager_is_of_one_mind_about_stays(mode: Callable[[], Any]) -> None:
    """No step that mixes numbers, draws them, writes or returns a view is another function there."""
    x = torch.arange(12.0).reshape(3, 4)

    def steps() -> list[Tensor]:
        torch.manual_seed(0)
        y = x.clone()
        y.add_(1.0)
        return [
            y, y.t(), y.softmax(0), y.cumsum(0), y.sum(1), y @ y.t(), torch.rand_like(y), y.flip(0), y + y[0],
            torch.complex(y, y), F.dropout(y), y.sort(0).values,
        ]  # fmt: skip

    expected = steps()
    with mode():
        found = steps()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()


def test_a_number_that_is_in_no_other_kernel_either_is_wrong_beside_nan() -> None:
    """A NaN elsewhere in the program forgives nothing."""
    program, x = gradient("elu"), torch.tensor([NAN, 1.0, 2.0])
    for wrong in ([NAN, 1.0, 2.0], [7.0, 1.0, 1.0]):
        found = compare(program, lambda x, g, wrong=wrong: [torch.tensor(wrong)], x, torch.ones(3))
        assert found.outcome == "mismatch", found
