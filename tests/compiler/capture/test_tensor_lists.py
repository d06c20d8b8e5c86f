"""Tensors made of lists that hold tensors, and indices that are such lists: no element is a constant."""

from __future__ import annotations

import pytest
import torch

import torchstone
from torchstone.compiler.diagnostics import TorchstoneError, Unsupported

x = torch.tensor([3.0, 1.0, 2.0])
i, j = torch.tensor(0), torch.tensor(1)


def filled(x):
    y = torch.zeros(2)
    y[:] = torch.tensor([x[0], x[1]])
    return y


def written(x, i, j):
    y = x.clone()
    y[[i, j],] = 7.0
    return y


PROGRAMS = {
    "tensor": (lambda x: torch.tensor([x.min(), x.max()]), (x,)),
    "mixed": (lambda x: torch.tensor([1, x.min(), 2.5]), (x,)),
    "nested": (lambda x: torch.tensor([[x[0], 1.0], (x[1], x[2])]), (x,)),
    "one element": (lambda x: torch.tensor([x[:1], x[1:2]]), (x,)),
    "dtype": (lambda x: torch.tensor([x.min(), x.max()], dtype=torch.float64), (x,)),
    "integers": (lambda i: torch.tensor([i, i + 1, True]), (i,)),
    "number read": (lambda x: torch.tensor([x.sum().item(), x.max()]), (x,)),
    "as_tensor": (lambda x: torch.as_tensor([x.min(), x.max()]), (x,)),
    "asarray": (lambda x: torch.asarray([x.min(), x.max()]), (x,)),
    "new_tensor": (lambda x: x.new_tensor([x.min(), x.max()]), (x,)),
    "filled": (filled, (x,)),
    "index": (lambda x, i, j: x[torch.tensor([i, j])], (x, i, j)),
    "index list": (lambda x, i, j: x.expand(2, 3)[:, [i, j]], (x, i, j)),
    "index nested": (lambda x, i, j: x[[[i, j], [j, j]],], (x, i, j)),
    "written": (written, (x, i, j)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_elements_are_values(name):
    fn, args = PROGRAMS[name]
    compiled = torchstone.compile(fn, args)
    for step in range(3):
        given = [a + step if a.is_floating_point() else (a + step) % 3 for a in args]
        want = fn(*given)
        try:
            got = compiled(*given)
        except TorchstoneError:
            assert step  # it takes its own example
            continue
        assert got.dtype is want.dtype
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", ["tensor", "mixed", "nested", "as_tensor", "new_tensor", "filled", "index list"])
def test_other_values_are_taken(name):
    fn, args = PROGRAMS[name]
    given = [a + 1 for a in args]
    torch.testing.assert_close(torchstone.compile(fn, args)(*given), fn(*given))


@pytest.mark.parametrize("make", [torch.Tensor, torch.FloatTensor])
def test_what_cpp_reads_unseen_is_refused(make):
    with pytest.raises(Unsupported, match="numbers of others") as error:
        torchstone.compile(lambda x: make([x.min(), x.max()]), (x,))
    assert "make([" in error.value.where


def test_what_eager_refuses_is_raised():
    with pytest.raises(ValueError, match="only one element tensors"):
        torchstone.compile(lambda x: torch.tensor([x, x]), (x,))
