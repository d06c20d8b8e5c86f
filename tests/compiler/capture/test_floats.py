"""Python's arithmetic with run-time floats gives what Python gives, bit by bit, and raises where Python raises."""

import itertools
import math
import operator
import random
import struct
from typing import Any

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

TARGETS = ("evaluator", "linalg")
NAN, INF = float("nan"), float("inf")
X = torch.tensor([0.5, -1.25, 3.0])
VALUES = (INF, -INF, NAN, -0.0, 0.0, 1e308, 0.1, -2.5, 5e-324, 1e16)
PAIRS = [(a, b) for k in (0, 1, 3) for a, b in zip(VALUES, VALUES[k:] + VALUES[:k], strict=True)]

_BINARY = (operator.add, operator.sub, operator.mul)
_RELATIONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_CONSTANTS = (0.1, 0.2, 3, -0.0, 1e308, 1e16, INF, NAN, 0, 1, 7)


def _tree(rng: random.Random, depth: int) -> Any:
    """A program of two floats, an int and a size."""
    kind = rng.random()
    if depth == 0 or kind < 0.1:
        if rng.random() < 0.3:
            constant = rng.choice(_CONSTANTS)
            return lambda *_: constant
        return _argument(rng.choice((0, 0, 1, 1, 2)))
    if kind < 0.25:
        inner, op = _tree(rng, depth - 1), rng.choice((operator.neg, operator.abs))
        return lambda *args: op(inner(*args))
    if kind < 0.4:
        inner, divisor = _tree(rng, depth - 1), rng.choice((0.1, 3, -7.0, 1e-308, INF, NAN))
        return lambda *args: inner(*args) / divisor
    left, right, op = _tree(rng, depth - 1), _tree(rng, depth - 1), rng.choice(_BINARY)
    return lambda *args: op(left(*args), right(*args))


def _argument(index: int) -> Any:
    return lambda *args: args[index]


def _bits(number: Any) -> Any:
    if isinstance(number, float):
        return "nan" if number != number else struct.pack("d", number)
    return type(number), number


RNG = random.Random(0)
TREES = [_tree(RNG, 4) for _ in range(16)]
COMPARED = [(RNG.choice(_RELATIONS), _tree(RNG, 2), _tree(RNG, 2)) for _ in range(8)]


def by_hand(a, b, i):
    return (
        a - a, a + b - a, a + b + b, b + a + b, 0.1 * a * 3, a * 0, 0 * a, a + 0.0, a * -1, a - 0.0, 0.0 - a, -a, +a,
        abs(a), a * b - b * a, a * b / 7, a / 0.1, (a + b) * 0.5, a * 2 + a, a == a, a != a, a < b, a >= b, a + 1 > a,
        i + 0.1 + 0.2, i * 0.1 * 3, i / 3 * 3, i * a - a * i, (i + 1) * a, 0.1 + 0.2 + a, a + (0.1 + 0.2), i > a,
    )  # fmt: skip


def by_chance(a, b, i):
    return (
        *(tree(a, b, i) * 1.0 for tree in TREES),
        *(relation(left(a, b, i) + a, right(a, b, i) + b) for relation, left, right in COMPARED),
    )


@pytest.mark.parametrize(("program", "target"), covering([by_hand, by_chance], TARGETS, strength=1))
def test_numbers_given(program: Any, target: str) -> None:
    exe = compile(program, (1.5, 2.5, 3), target)
    assert not exe.specialized
    for (a, b), i in zip(PAIRS, itertools.cycle((-4, 12345, 0))):
        assert [*map(_bits, exe(a, b, i))] == [*map(_bits, program(a, b, i))], (a, b, i)


@pytest.mark.few(1)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dynamic", [None, (None, None, None)], ids=["dispatch", "export"])
def test_numbers_read_from_tensors(target: str, dynamic: Any) -> None:
    def program(a, b, i):
        return by_chance(a.item(), b.item(), i.item()) + by_hand(a.item(), b.item(), i.item())

    def tensors(a: float, b: float, i: int) -> Any:
        return torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64), torch.tensor(i)

    exe = compile(program, tensors(1.5, 2.5, 3), target, dynamic)
    assert not exe.specialized
    for a, b in PAIRS:
        given = tensors(a, b, -4)
        assert [*map(_bits, exe(*given))] == [*map(_bits, program(*given))], (a, b)


@pytest.mark.parametrize("target", TARGETS)
def test_it_raises_where_python_raises(target: str) -> None:
    def divided(a, b):
        return 1 / a, b / a, torch.sym_sqrt(b)

    exe = compile(divided, (2.0, 3.0), target)
    assert not exe.specialized
    assert [*map(_bits, exe(NAN, INF))] == [*map(_bits, divided(NAN, INF))]
    for a, b, error in ((0.0, 1.0, "ZeroDivision"), (-0.0, NAN, "ZeroDivision"), (2.0, -1.0, "ValueError")):
        with pytest.raises((ZeroDivisionError, ValueError)):
            divided(a, b)
        with pytest.raises(RuntimeError, match=error):
            exe(a, b)


@pytest.mark.parametrize("target", TARGETS)
def test_ints_that_are_no_int64_raise(target: str) -> None:
    def program(i, k):
        return i + k, i * k, i * i - k, -i, i // k, i % k, abs(i - k)

    exe = compile(program, (3, 5), target)
    assert not exe.specialized
    for i, k in ((-7, 2), (7, -2), (0, -1), ((1 << 61) - 1, 1)):
        if i < 1 << 31:
            assert exe(i, k) == program(i, k)
    for i, k in (((1 << 62) + 5, 1 << 62), (1 << 40, 1), (-(1 << 63), 1)):
        with pytest.raises(Unsupported, match=r"2\*\*62"):
            exe(i, k)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        exe(1, 0)


DECIDING = {
    "not a number": lambda x, a: x if a == a else x * 2,
    "power": lambda x, a: x * a**2,
    "floor division": lambda x, a: x * (a // 0.1),
    "remainder": lambda x, a: x * (a % 0.3),
    "truncated": lambda x, a: x * int(a),
    "floor": lambda x, a: x * math.floor(a),
    "rounded": lambda x, a: x * round(a, 1),
    "least": lambda x, a: x * min(a, 2.0),
    "sine": lambda x, a: x * math.sin(a),
    "whole": lambda x, a: x * a.is_integer(),
    "caught": lambda x, a: x * _or_nothing(a),
    "another number": lambda x, a: x * (a if isinstance(a, float) else 2.0),
    "another way": lambda x, a: x * (a * 2 if isinstance(a, float) else a * 3),
    "another result": lambda x, a: (x * a, 1 if isinstance(a, float) else 2),
    "printed": lambda x, a: (x * a, len(f"{a}")),
    "a large int": lambda x, a: x * (a > (1 << 53) + 1),
}


def _or_nothing(a: float) -> float:
    try:
        return a**2
    except Exception:
        return 0.0


# Those of which ops tell, or which the program does not decide by after all.
COMPUTED = {"power", "truncated", "floor", "caught", "another number", "another way", "another result"}


@pytest.mark.parametrize("name", DECIDING)
def test_what_no_op_tells_is_specialized(name: str) -> None:
    fn, x = DECIDING[name], X
    exe = compile(fn, (x, 1.0), "evaluator")
    assert bool(exe.specialized) == (name not in COMPUTED)
    assert all("argument 1" in text for text in exe.specialized)
    torch.testing.assert_close(exe(x, 1.0), fn(x, 1.0), rtol=0, atol=0)
    for other in (2.0, 2.75, -3.5, -0.0, NAN):
        try:
            got = exe(x, other)
        except (GuardError, Unsupported) as error:
            assert "test_floats.py" in str(error) or "argument 1" in str(error)
        else:
            torch.testing.assert_close(got, fn(x, other), equal_nan=True)


def test_floats_of_sizes_keep_their_order() -> None:
    def program(x):
        n = x.shape[0]
        return n * 0.1 * 3, 0.1 + n + 0.2 - n, n**-0.5 * 0.1 * 3, 1 / (n - 20.5), x.sum(0) * (n * 0.1 * 3)

    exe = compile(program, (torch.rand(5, 2, dtype=torch.float64),), "evaluator", ({0: torch.export.Dim.AUTO},))
    for size in range(2, 12):
        x = torch.rand(size, 2, dtype=torch.float64)
        assert [*map(_bits, exe(x)[:-1])] == [*map(_bits, program(x)[:-1])]
        torch.testing.assert_close(exe(x)[-1], program(x)[-1], rtol=1e-15, atol=0)


def test_the_zeros_are_two_numbers() -> None:
    for fn, given, other in (
        (lambda x, a: x if a else x / a, (X, 0.0), (X, -0.0)),
        (lambda x, a: x if a.item() else x / a.item(), (X, torch.tensor(0.0)), (X, torch.tensor(-0.0))),
        (lambda x, a: x * 2 if a == 0 else x, (X, NAN), (X, 0.0)),
    ):
        exe = compile(fn, given, "evaluator")
        assert exe.specialized
        torch.testing.assert_close(exe(*given), fn(*given), rtol=0, atol=0)
        try:
            got = exe(*other)
        except GuardError:
            continue
        torch.testing.assert_close(got, fn(*other), rtol=0, atol=0)


@pytest.mark.parametrize("deciding", [lambda a: a == a, lambda a: a - a != 0, lambda a: torch._check(a > 1)])
def test_export_does_not_decide_for_all_numbers(deciding: Any) -> None:
    def program(x):
        return x * 2 if deciding(x.item()) else x

    with pytest.raises(Unsupported, match=r"data-dependent|torch\._check"):
        compile(program, (torch.tensor(1.5),), "evaluator", (None,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.complex128])
def test_a_rule_that_asks_for_a_value_takes_the_number_that_item_gave(dtype: torch.dtype) -> None:
    """The gradient of a product conjugates the number: an op of a number alone."""

    def gradient(x: torch.Tensor, y: torch.Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(leaf * y.sum().item(), leaf, torch.ones_like(leaf))

    y = torch.tensor([1.0 + 2.0j, 3.0 - 0.5j]) if dtype.is_complex else torch.tensor([1.5, 2.0])
    x, y = torch.ones(3, dtype=dtype), y.to(dtype)
    for target in TARGETS:
        found = compile(gradient, (x, y), target=target)(x, y)
        torch.testing.assert_close(found, gradient(x, y), rtol=0, atol=0)
