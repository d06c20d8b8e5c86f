"""Python's numbers: read from tensors, given and returned. One program for all of them, unless it decides by one."""

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.driver import compile

N = torch.export.Dim.AUTO
TARGETS = ("evaluator", "linalg")


def reads(x):
    top = x.max().item()
    return x * x.sum().item() + 2 * top, torch.full((2,), top), x.masked_fill(x > 0, top), x.half() * top


def counts(i):
    total = i.sum().item()
    return total, total // 2 - 1, total % 3, total / 4, total > 2, i * total, (i > 1).any().item()


def integers_and_floats(i, f):
    return i * f, i + f, i > f, i // 2 * f, torch.where(i > 1, i, f)


def scaled(x, factor, shift):
    return x * factor + shift, factor * 2, x.sum() - factor, torch.clamp(x, min=factor)


def at_place(x, i):
    y = x.clone()
    y[i] = 5.0
    y[:, i] += 1
    y[..., i, None] *= 2
    y[i].mul_(3)
    return x[i], x[:, i], x[i, 1:], x[1, i], y


X, Y = torch.tensor([0.5, -1.25, 3.0]), torch.tensor([-7.0, 2.0, 0.125])
WHOLE, OTHER = torch.tensor([1, 2, 5]), torch.tensor([-4, 0, -9])
NAN, INF = float("nan"), float("inf")
SQUARE = torch.arange(9.0).view(3, 3)
PROGRAMS = {
    "reads": (reads, [(X,), (Y,)]),
    "counts": (counts, [(WHOLE,), (OTHER,)]),
    "integers and floats": (integers_and_floats, [(WHOLE, 2.5), (OTHER, 1e-3), (OTHER, -3.0)]),
    "class": (lambda x, f: x * f if isinstance(f, float) else x, [(X, 2.5), (Y, 0.5)]),
    "scaled": (scaled, [(X, 2.5, 3), (Y, -0.5, -4), (X, NAN, 0), (Y, INF, 1)]),
    "of a 0-d tensor": (lambda x, f: (x * f, x + f, x > f), [(torch.tensor(3), 1.5), (torch.tensor(0.1), 0.1)][:1]),
    "length": (lambda x: (x[x > 0].shape[0], x[x > 0] * 2), [(X,), (Y,)]),
    "list": (lambda i: i.tolist(), [(WHOLE,), (OTHER,)]),
    "at a place": (at_place, [(SQUARE, torch.tensor(k)) for k in (1, 0, -1, 2, -3)]),
}


@pytest.mark.parametrize(("name", "target"), covering(PROGRAMS, TARGETS, strength=1))
def test_one_program_for_every_number(name: str, target: str) -> None:
    fn, calls = PROGRAMS[name]
    exe = compile(fn, calls[0], target)
    assert not exe.specialized
    for args in calls:
        got, expected = exe(*args), fn(*args)
        torch.testing.assert_close(got, expected, equal_nan=True)
        assert [type(g) for g in got] == [type(e) for e in expected]


def test_a_number_is_read_when_the_program_reads_it() -> None:
    def program(x):
        before = x.sum().item()
        x.mul_(2)
        return before, x.sum().item(), x * before

    exe = compile(program, (X.clone(),), "evaluator")
    mine, theirs = Y.clone(), Y.clone()
    torch.testing.assert_close(exe(mine), program(theirs))
    torch.testing.assert_close(mine, theirs)


DECIDING = {
    "branch": (lambda x, f: x * 2 if f > 1 else x, 2.5, 0.5),
    "size": (lambda x, k: x[:k], 2, 1),
    "loop": (lambda x, k: sum((x for _ in range(k)), x), 2, 1),
    "flag": (lambda x, flag: x * 2 if flag is True else x, True, False),
    "exponent": (lambda x, f: x**f, 2.0, 3.0),
}


@pytest.mark.parametrize("name", DECIDING)
def test_a_number_that_the_program_decides_by_is_told_and_guarded(name: str) -> None:
    fn, number, another = DECIDING[name]
    exe = compile(fn, (X, number), "evaluator")
    assert exe.specialized and all("argument 1" in text for text in exe.specialized)
    torch.testing.assert_close(exe(Y, number), fn(Y, number))
    with pytest.raises(GuardError, match="argument 1"):
        exe(Y, another)


def test_a_number_of_another_class_is_no_such_number() -> None:
    exe = compile(lambda x, f: x * f, (X, 2.5), "evaluator")
    with pytest.raises(GuardError, match="argument 1 was of class float when compiled, is 2"):
        exe(X, 2)
    with pytest.raises(GuardError, match="argument 1 was of class float"):
        exe(X, X)
    whole = compile(lambda x, k: x * k, (X, 2), "evaluator")
    with pytest.raises(GuardError, match="which is no int64"):
        whole(X, 1 << 70)


def test_a_place_that_is_not_there() -> None:
    exe = compile(lambda x, i: x[i], (X, torch.tensor(1)), "linalg")
    with pytest.raises(IndexError, match="out of range"):  # a view of x, made when the call ends
        exe(X, torch.tensor(3))
    exe = compile(lambda x, i: x[i] * 2, (X, torch.tensor(1)), "linalg")
    with pytest.raises(RuntimeError, match="out of bounds"):
        exe(X, torch.tensor(3))


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_beside_dynamic_sizes(target: str) -> None:
    def program(x, i):
        top = x.max().item()
        return x[i] * top, top, x.shape[0] * 0.5, x.shape[0], x.shape[0] + i.item(), (x > 0).all().item()

    args = (torch.rand(6, 4), torch.tensor(2))
    exe = compile(program, args, target, ({0: N}, None))
    for call in (args, (torch.randn(9, 4), torch.tensor(-3)), (torch.randn(4, 4), torch.tensor(0))):
        torch.testing.assert_close(exe(*call), program(*call))
