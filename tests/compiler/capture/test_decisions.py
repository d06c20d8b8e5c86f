"""Programs with values that Python reads: one executable is right for other values, or refuses them; never wrong."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.sampling import covering, one_in
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

TARGETS = ("evaluator", "linalg")
X = torch.linspace(-2, 3, 12).view(3, 4)
FLOATS, INTS = (1.5, 2.25, -0.75), (2, 1, 3)

Program = Callable[..., Any]


def outcomes(fn: Program, calls: list[Any], target: str, dynamic: Any = None) -> list[str]:
    """Compile for the first call and make them all; the first has to be right, the others right or refused."""
    try:
        exe = compile(fn, calls[0], target, dynamic)
    except Unsupported:
        return ["unsupported"] * len(calls)
    told = []
    for place, args in enumerate(calls):
        expected = fn(*args)
        try:
            got = exe(*args)
        except (GuardError, Unsupported) as error:
            assert place, f"refuses its example: {error}"
            assert "test_decisions.py" in str(error) or "argument" in str(error)
            told.append("refused")
            continue
        torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-5, atol=1e-5)
        assert _classes(got) == _classes(expected)
        told.append("right")
    return told


def _classes(out: Any) -> list[type]:
    return [type(leaf) for leaf in torch.utils._pytree.tree_leaves(out)]


def float_t(x, t):
    return x * float(t), float(t) / 3, float(t.sum()), x * bool(t > 0)


def int_t(x, t):
    return x * int(t), int(t) + 1, int(t * 3), float(int(t))


def whole(x, t):
    return x * math.floor(t.item()), math.ceil(t.item()), round(t.item()), math.trunc(t.item() * 2)


def maps(x, t):
    a, b = map(float, (t, t * 2))
    return x * a + b


def places(x, k):
    return x[int(k) - 1], x[k.item() - 1] * 2, torch.full((int(k) + 1,), 1.5)


def class_of(x, t):
    n = t.item()
    return x * n if isinstance(n, float | int) else x


def powers(x, f, k):
    return x * (f / (1 - 0.9**k)), x * 0.5**f


COMPUTING: dict[str, tuple[Program, list[Any]]] = {
    "float": (float_t, [(X, torch.tensor(v)) for v in FLOATS]),
    "float of an int": (float_t, [(X, torch.tensor(v)) for v in INTS]),
    "int": (int_t, [(X, torch.tensor(v)) for v in INTS]),
    "int of a float": (int_t, [(X, torch.tensor(v)) for v in FLOATS]),
    "whole": (whole, [(X, torch.tensor(v)) for v in FLOATS]),
    "map": (maps, [(X, torch.tensor(v)) for v in FLOATS]),
    "places": (places, [(X, torch.tensor(v)) for v in INTS]),
    "class": (class_of, [(X, torch.tensor(v)) for v in FLOATS]),
    "powers": (powers, [(X, 0.5, 1), (X, 0.25, 2), (X, 1.5, 9)]),
}


@pytest.mark.few(5)
@pytest.mark.parametrize(("name", "target"), covering(COMPUTING, TARGETS, strength=1))
def test_what_is_only_computed_with_is_no_constant(name: str, target: str) -> None:
    fn, calls = COMPUTING[name]
    assert not compile(fn, calls[0], target).specialized
    assert outcomes(fn, calls, target) == ["right"] * 3


def several(x, t, lr, scale, n):
    if scale > 0:
        x = x * scale
    for _ in range(n):
        x = x - lr * x
    return x * t.item(), lr * 2


@pytest.mark.parametrize("target", TARGETS)
def test_only_what_a_decision_depends_on_is_specialized(target: str) -> None:
    exe = compile(several, (X, torch.tensor(1.0), 0.1, 2.0, 2), target)
    assert len(exe.specialized) == 2
    assert "x = x * scale" not in exe.specialized[0] and "if scale > 0" in exe.specialized[0]
    assert "a decision by argument 3" in exe.specialized[0] and "a decision by argument 4" in exe.specialized[1]
    for args in ((X + 1, torch.tensor(-3.0), 0.7, 5.0, 2), (X, torch.tensor(float("nan")), -0.7, 1e-9, 2)):
        torch.testing.assert_close(exe(*args), several(*args), equal_nan=True)
    for args in ((X, torch.tensor(1.0), 0.1, -2.0, 2), (X, torch.tensor(1.0), 0.1, 2.0, 3)):
        with pytest.raises(GuardError, match=r"test_decisions\.py"):
            exe(*args)


def test_numbers_that_are_no_int_are_refused_at_run_time() -> None:
    exe = compile(lambda x, t: x * int(t), (X, torch.tensor(1.5)), "evaluator")
    for bad in (float("nan"), float("inf"), 1e30):
        with pytest.raises(Unsupported, match="int of a float"):
            exe(X, torch.tensor(bad))


DECIDING: dict[str, tuple[Program, list[Any]]] = {
    "printed": (lambda x, t: x * len(f"{float(t):.2f}"), [(X, torch.tensor(v)) for v in (1.5, 2.25, -10.0)]),
    "a key": (lambda x, k: {1: x, 2: x * 2, 3: x * 3}[int(k)], [(X, torch.tensor(v)) for v in INTS]),
    "an index": (lambda x, k: x[operator.index(k) - 1], [(X, torch.tensor(v)) for v in INTS]),
    "a range": (lambda x, k: [x * i for i in range(int(k))], [(X, torch.tensor(v)) for v in INTS]),
    "rounded": (lambda x, t: x * round(t.item(), 1), [(X, torch.tensor(v)) for v in FLOATS]),
    "complex": (lambda x, t: x * complex(t), [(X, torch.tensor(v)) for v in FLOATS]),
    "largest": (lambda x, t: x * max(float(t), 1.0), [(X, torch.tensor(v)) for v in FLOATS]),
    "a dim": (lambda x, k: x.sum(int(k) - 2), [(X, torch.tensor(v)) for v in INTS]),
    "a loop": (lambda x, t: [x for _ in range(4) if x.sum().item() > float(t)], [(X, torch.tensor(v)) for v in FLOATS]),
}


@pytest.mark.parametrize(("name", "target"), covering(DECIDING, TARGETS, strength=1))
def test_what_is_decided_by_is_right_or_refused(name: str, target: str) -> None:
    fn, calls = DECIDING[name]
    assert "unsupported" not in outcomes(fn, calls, target)


LENGTHS = [torch.tensor(v) for v in ([1, 2, 1], [2, 1, 1], [1, 1, 2])]
SIZED: dict[str, tuple[Program, list[Any]]] = {
    "split": (lambda x, l: torch.split(x.T, l.tolist()), [(X, l) for l in LENGTHS]),  # noqa: E741
    "split_with_sizes": (lambda x, l: x.split_with_sizes(l.tolist(), 1), [(X, l) for l in LENGTHS]),  # noqa: E741
    "unbind": (lambda x, l: [x[:, : int(n)] for n in l.unbind()], [(X, l) for l in LENGTHS]),  # noqa: E741
    "repeat_interleave": (lambda x, k: x.repeat_interleave(int(k), 0), [(X, torch.tensor(v)) for v in INTS]),
    "narrow": (lambda x, k: x.narrow(1, 0, k.item()), [(X, torch.tensor(v)) for v in INTS]),
    "slice": (lambda x, k: x[:, : k.item()], [(X, torch.tensor(v)) for v in INTS]),
    "pad": (lambda x, k: F.pad(x, (0, int(k))), [(X, torch.tensor(v)) for v in INTS]),
    "view": (lambda x, k: x.view(int(k), -1), [(X, torch.tensor(v)) for v in (6, 1, 3)]),
    "arange": (lambda x, k: torch.arange(k.item()) * 2, [(X, torch.tensor(v)) for v in INTS]),
    "chunk": (lambda x, k: x.chunk(k.item(), 1), [(X, torch.tensor(v)) for v in INTS]),
    "tile": (lambda x, k: x.tile((1, int(k))), [(X, torch.tensor(v)) for v in INTS]),
    "expand": (lambda x, k: x[:1].expand(int(k), 4), [(X, torch.tensor(v)) for v in INTS]),
    "repeat": (lambda x, k: x.repeat(k.item(), 1), [(X, torch.tensor(v)) for v in (1, 0, 3)]),
    "nothing": (lambda x, k: x.narrow(0, 0, k.item()).sum(0), [(X, torch.tensor(v)) for v in (0, 1, 3)]),
    "zeros": (lambda x, k: torch.zeros(k.item(), 2).sum(), [(X, torch.tensor(v)) for v in (0, 1, 5)]),
}


# Python counts by the number: another one is another program. torch.export takes none of these but the padding.
COUNTED = {"split", "split_with_sizes", "unbind", "slice", "pad", "arange", "chunk"}


@pytest.mark.few(6)
@pytest.mark.parametrize(("name", "target"), covering(SIZED, TARGETS, strength=1))
def test_an_executable_takes_its_own_example(name: str, target: str) -> None:
    fn, calls = SIZED[name]
    assert outcomes(fn, calls, target) == ["right", *["refused" if name in COUNTED else "right"] * 2]


@pytest.mark.few(7)
@pytest.mark.parametrize(("name", "target"), covering(SIZED, TARGETS, strength=1))
def test_under_dynamic_shapes_other_sizes_are_right(name: str, target: str) -> None:
    fn, calls = SIZED[name]
    wanted = "unsupported" if name in COUNTED - {"pad"} else "right"
    assert outcomes(fn, calls, target, (None, None)) == [wanted] * 3


@pytest.mark.parametrize(("name", "target"), covering(SIZED, ["tosa", "stablehlo", "tensorrt"], strength=1))
def test_other_targets_take_it_or_refuse_it(name: str, target: str) -> None:
    fn, calls = SIZED[name]
    told = outcomes(fn, calls, target)
    assert told[0] in ("right", "unsupported"), told


NUMBERS: list[Any] = [
    lambda x, t, k, f: t.item(),
    lambda x, t, k, f: float(t),
    lambda x, t, k, f: int(t),
    lambda x, t, k, f: k.item(),
    lambda x, t, k, f: float(k),
    lambda x, t, k, f: int(k),
    lambda x, t, k, f: f,
    lambda x, t, k, f: torch.stack([t, t + 1]).tolist()[1],
    lambda x, t, k, f: bool(t > 0),
    lambda x, t, k, f: x.max().item(),
]
ARITHMETIC: list[Any] = [
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: -a, lambda a, b: abs(b),
    lambda a, b: a / 4, lambda a, b: b * 0.5 + a, lambda a, b: (abs(a) + 1) ** 2,
]  # fmt: skip
USES: list[Any] = [
    lambda x, n: x * n, lambda x, n: x + n, lambda x, n: x.add(x, alpha=n), lambda x, n: torch.where(x > n, x, 1.0),
    lambda x, n: torch.addcmul(x, x, x, value=n), lambda x, n: x.lerp(x + 1, float(n)), lambda x, n: x.clamp(max=n),
    lambda x, n: F.leaky_relu(x, float(n)), lambda x, n: x.masked_fill(x > 0, n), lambda x, n: x - x.mean() * n,
]  # fmt: skip
DECISIONS: list[Any] = [
    lambda n: n > 0, lambda n: n != 2, lambda n: int(n) % 2 == 0, lambda n: n in (1, 2.25), lambda n: round(n, 1) > 1,
]  # fmt: skip


def generated(seed: int) -> Program:
    """Return a program of a tensor, a 0-d float, a 0-d int and a float that reads, computes, uses and decides."""
    rng = random.Random(seed)

    def number(depth: int) -> Any:
        if not depth or rng.random() < 0.4:
            return rng.choice(NUMBERS)
        op, left, right = rng.choice(ARITHMETIC), number(depth - 1), number(depth - 1)
        return lambda *args: op(left(*args), right(*args))

    steps = []
    for _ in range(rng.randint(1, 3)):
        decision = rng.choice(DECISIONS) if rng.random() < 0.3 else None
        steps.append((decision, number(2), number(2), rng.choice(USES), rng.choice(USES)))
    returned = number(2)

    def program(x, t, k, f):
        start = x
        for decision, by, n, use, other in steps:
            taken = decision is None or decision(by(start, t, k, f))
            x = (use if taken else other)(x, n(start, t, k, f))
        return x, returned(start, t, k, f)

    return program


CALLS = [
    (X + i, torch.tensor(t), torch.tensor(k), f)
    for i, (t, k, f) in enumerate([(1.5, 2, 0.25), (2.25, 1, 0.75), (-0.75, 3, -1.5)])
]


@pytest.mark.few(8)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", one_in(2, range(40)))
def test_generated_programs_are_right_or_refused(seed: int, target: str) -> None:
    assert outcomes(generated(seed), CALLS, target)[0] == "right"
