"""Attributes of tensors are Python state like any: read, guarded, written again at each call, or refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import torchstone
from torchstone.compiler.diagnostics import GuardError, Unsupported

ones = torch.ones(2)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.ones(2))
        self.a.scale = 2.0

    def forward(self, x):
        return x * self.a.scale + self.a


@pytest.mark.parametrize("writes", [False, True])
def test_what_is_read_is_guarded(writes):
    m = Scaled()

    def program(x):
        return m(x).add_(1) if writes else m(x)

    compiled = torchstone.compile(program, (ones,))
    torch.testing.assert_close(compiled(ones), program(ones))
    m.a.other = 3
    torch.testing.assert_close(compiled(ones), program(ones))
    m.a.scale = 5.0
    with pytest.raises(GuardError, match=r"a\.scale was 2.0"):
        compiled(ones)


@pytest.mark.parametrize("writes", [False, True])
def test_an_argument_has_its_attributes(writes):
    def program(x):
        out = x * getattr(x, "weight", 1.0)
        return out.add_(1) if writes else out

    given = torch.ones(2)
    given.weight = 3.0
    compiled = torchstone.compile(program, (given,))
    assert torch.equal(compiled(given), program(given))
    assert vars(given) == {"weight": 3.0}
    with pytest.raises(GuardError, match="weight"):
        compiled(torch.ones(2))
    other = torch.ones(2)
    other.weight = 4.0
    with pytest.raises(GuardError, match="weight"):
        compiled(other)


@pytest.mark.parametrize("looks", [lambda t: getattr(t, "flag", False), lambda t: hasattr(t, "flag")])
def test_an_attribute_that_is_new(looks):
    kept = [torch.ones(2)]

    def program(x):
        return x * 2 if looks(kept[0]) or looks(x) else x * 3

    compiled = torchstone.compile(program, (ones,))
    assert torch.equal(compiled(ones), program(ones))
    given = torch.ones(2)
    given.unrelated_to_this = 1
    if looks is not None:
        given.flag = True
    with pytest.raises(GuardError, match="not there when compiled"):
        compiled(given)
    kept[0].flag = True
    with pytest.raises(GuardError, match="not there when compiled"):
        compiled(ones)


def test_what_is_written_is_written_again():
    w = nn.Parameter(torch.ones(2))
    w.momentum, w.last = torch.zeros(2), None

    @torch.no_grad()
    def step(x):
        w.momentum.mul_(0.5).add_(x)
        w.sub_(w.momentum)
        w.last = x * 2
        return w * 1

    compiled = torchstone.compile(step, (ones,))
    assert w.last is None and not w.momentum.any() and torch.equal(w.detach(), ones)
    for _ in range(2):
        before = w.detach().clone(), w.momentum.clone()
        got = compiled(ones).clone()
        mine = got, w.momentum.clone(), w.last.clone()
        with torch.no_grad():
            w.copy_(before[0])
        w.momentum.copy_(before[1])
        assert all(torch.equal(a, b) for a, b in zip(mine, (step(ones), w.momentum, w.last), strict=True))


def on_a_parameter(w, x):
    w.steps = getattr(w, "steps", 0) + 1
    return x * w


def on_an_argument(w, x):
    x.seen = True
    return x * w


def on_a_result(w, x):
    out = x * w
    out.name_of_it = "product"
    return out


def by_setattr(w, x):
    setattr(w, "st" + "eps", 1)
    return x * w


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("fn", [on_a_parameter, on_an_argument, on_a_result, by_setattr])
def test_a_first_attribute_is_refused_and_leaves_no_trace(fn, writes):
    w, given = nn.Parameter(torch.ones(2)), torch.ones(2)

    def program(x):
        out = fn(w, x)
        x = x.clone().add_(1) if writes else x
        return out, x

    with pytest.raises(Unsupported, match="attribute") as error:
        torchstone.compile(program, (given,))
    assert fn is on_a_result or "test_tensor_attributes.py" in error.value.where
    assert not vars(w) and not vars(given)


def test_a_refused_dynamic_compile_leaves_no_attributes():
    given = torch.ones(2, 3)
    rows = torch.export.Dim("rows", min=2)
    with pytest.raises(Unsupported):
        torchstone.compile(lambda x: x * 2 if x.shape[0] > 3 else x.sum(0), (given,), dynamic_shapes=({0: rows},))
    assert not vars(given)
    torchstone.compile(lambda x: x * 2, (given,), dynamic_shapes=({0: rows},))
    assert not vars(given)


def test_attributes_under_dynamic_shapes_are_refused():
    given = torch.ones(2, 3)
    given.scale = 2.0
    with pytest.raises(Unsupported, match="scale"):
        torchstone.compile(lambda x: x * x.scale, (given,), dynamic_shapes=({0: torch.export.Dim("rows", min=2)},))
