"""What a program asks of tensors beside their values: each call asks again, and nothing that was not asked counts."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn

import torchstone
from torchstone.compiler.diagnostics import GuardError, Unsupported

x = torch.arange(6.0).reshape(2, 3)
same = torch.ones(3)


def tracked():
    return torch.ones(2, 3, requires_grad=True)


def with_grad():
    out = torch.ones(2, 3, requires_grad=True)
    out.grad = torch.ones(2, 3)
    return out


def inference():
    with torch.inference_mode():
        return torch.ones(2, 3)


def as_parameter(x):
    return x * 2 if isinstance(x, nn.Parameter) else x * 3


# A question, and tensors that answer it in two ways.
QUESTIONS = {
    "requires_grad": (lambda x: x.requires_grad, x, tracked()),
    "is_leaf": (lambda x: x.is_leaf, tracked(), tracked() * 2),
    "grad_fn": (lambda x: x.grad_fn is None, x, tracked() * 2),
    "grad": (lambda x: x.grad is None, tracked(), with_grad()),
    "is_inference": (lambda x: x.is_inference(), x, inference()),
    "torch.is_inference": (lambda x: torch.is_inference(x), x, inference()),
    "isinstance": (lambda x: isinstance(x, nn.Parameter), x, nn.Parameter(x.clone())),
    "parameter": (lambda x: not isinstance(x, nn.Parameter), nn.Parameter(x.clone()), x),
    "is_contiguous": (lambda x: x.is_contiguous(), x, torch.ones(3, 2).t()),
    "not contiguous": (lambda x: not x.is_contiguous(), torch.ones(3, 2).t(), x),
    "stride": (lambda x: x.stride() == (3, 1), x, torch.ones(3, 2).t()),
    "stride of a dim": (lambda x: x.stride(0) == 3, x, torch.ones(3, 2).t()),
    "storage_offset": (lambda x: x.storage_offset() == 0, x, torch.ones(4, 3)[2:]),
    "dim_order": (lambda x: x.dim_order() == (0, 1), x, torch.ones(3, 2).t()),
    "requires_grad of a result": (lambda x: (x * 2).requires_grad, x, tracked()),
    "grad_fn of a result": (lambda x: (x + 1).grad_fn is None, x, tracked()),
    "layout of a result": (lambda x: (x + 1).is_contiguous(), x, torch.ones(3, 2).t()),
    "stride of a view": (lambda x: x[:, 0].stride(0) == 3, x, torch.ones(3, 2).t()),
}


def told(question, x):
    return x * 2 if question(x) else x * 3


def held(question, x, w):
    return x * 2 if question(w[0]) else x * 3


@pytest.mark.parametrize("writes", [False, True])
@pytest.mark.parametrize("name", QUESTIONS)
def test_an_argument_is_asked_again(name, writes):
    question, example, other = QUESTIONS[name]

    def program(x):
        out = told(question, x)
        return out.add_(1) if writes else out

    compiled = torchstone.compile(program, (example,))
    assert torch.equal(compiled(example), program(example))
    assert torch.equal(compiled(example), program(example))
    with pytest.raises(GuardError, match="compiled"):
        compiled(other)


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_tensor_that_is_held_is_asked_again(name):
    question, example, other = QUESTIONS[name]
    kept = [example]

    def program(x):
        return told(lambda x: question(kept[0]), x)

    compiled = torchstone.compile(program, (x,))
    assert torch.equal(compiled(x), program(x))
    kept[0] = other
    with pytest.raises(GuardError, match="compiled"):
        compiled(x)


@pytest.mark.few(10)
@pytest.mark.parametrize("name", QUESTIONS)
def test_under_dynamic_shapes_it_is_right_or_refused(name):
    question, example, other = QUESTIONS[name]
    shapes = ({0: torch.export.Dim("rows", min=2)},)
    try:
        compiled = torchstone.compile(lambda x: told(question, x), (example,), dynamic_shapes=shapes)
    except Unsupported:
        return
    for given in (example, other):
        try:
            got = compiled(given)
        except GuardError:
            assert given is other
            continue
        assert torch.equal(got, told(question, given))


def test_what_changes_on_one_tensor_is_asked_again():
    w = nn.Parameter(torch.ones(3))
    compiled = torchstone.compile(lambda x: x * w if w.requires_grad else x * 0, (x,))
    compiled(x)
    w.requires_grad_(False)
    with pytest.raises(GuardError, match="requires_grad"):
        compiled(x)


def test_what_is_not_asked_may_be_anything():
    w = nn.Parameter(torch.ones(2, 3))
    compiled = torchstone.compile(lambda x: x * w, (x,))
    for other in (tracked(), torch.ones(3, 2).t(), inference(), nn.Parameter(x.clone())):
        w.requires_grad_(not w.requires_grad)
        assert torch.equal(compiled(other), other * w)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_are_asked_again(mode):
    ask = torch.is_grad_enabled if mode is torch.no_grad else torch.is_inference_mode_enabled

    def program(x):
        return x * 2 if ask() else x * 3

    for first, second in ((contextlib.nullcontext, mode), (mode, contextlib.nullcontext)):
        with first():
            compiled = torchstone.compile(program, (x,))
            assert torch.equal(compiled(x), program(x))
        with second(), pytest.raises(GuardError, match="enabled"):
            compiled(x)


def test_requires_grad_is_left_as_eager_leaves_it():
    layer = nn.Linear(3, 3)

    def freeze(x):
        for p in layer.parameters():
            p.requires_grad_(False)
        return layer(x)

    compiled = torchstone.compile(freeze, (x,))
    assert layer.weight.requires_grad and layer.bias.requires_grad
    compiled(x)
    assert not layer.weight.requires_grad and not layer.bias.requires_grad

    def track(x):
        x.requires_grad = True
        return torch.autograd.grad((x * x).sum(), x)[0]

    given = torch.ones(3)
    compiled = torchstone.compile(track, (given,))
    assert not given.requires_grad
    assert torch.equal(compiled(given), 2 * torch.ones(3))
    assert given.requires_grad


@pytest.mark.parametrize(
    "leave",
    [
        lambda w: w.detach_(),
        lambda w: w.register_hook(print),
        lambda w: w.retain_grad(),
        lambda w: w.register_post_accumulate_grad_hook(print),
        lambda w: w._version,
    ],
)
def test_what_cannot_be_done_again_is_refused(leave):
    w = nn.Parameter(torch.ones(3))

    def program(x):
        leave(w)
        return x * w

    with pytest.raises(Unsupported) as error:
        torchstone.compile(program, (x,))
    assert "leave" in error.value.where or "lambda" in error.value.where
    assert w.requires_grad and not w._backward_hooks


@pytest.mark.parametrize("text", [str, repr, "{}".format, lambda x: f"{x}", lambda x: f"{x!r}", "%s".__mod__])
def test_the_text_of_a_tensor_is_refused(text):
    with pytest.raises(Unsupported, match="Tensor"):
        torchstone.compile(lambda x: text(x), (x,))
    with pytest.raises(Unsupported, match="Tensor"):
        torchstone.compile(lambda x: str(x.sum()), (x,))


def test_two_tensors_that_are_one_now():
    w = torch.ones(3)
    programs = [
        (lambda q, k: q * 2 if q is k else q * 3, True),
        (lambda q, k: q * 2 if any(q is one for one in [k]) else q * 3, True),
        (lambda q, k: q * 2 if id(q) == id(k) else q * 3, True),
        (lambda q, k: q * 2 if q is w else q * k, True),
        (lambda q, k: q * 2 if k is None else q * k, False),
    ]
    for fn, tells in programs:
        compiled = torchstone.compile(fn, (torch.ones(3), torch.zeros(3)))
        one = w if tells else torch.ones(3)
        with pytest.raises(GuardError, match="were two") if tells else contextlib.nullcontext():
            assert torch.equal(compiled(one, one), fn(one, one))
    compiled = torchstone.compile(programs[3][0], (torch.ones(3), torch.zeros(3)))
    with pytest.raises(GuardError, match="were two"):
        compiled(w, torch.ones(3))
