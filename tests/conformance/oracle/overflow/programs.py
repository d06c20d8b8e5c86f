"""Generated programs whose numbers lie near the end of the range, with right answers and wrong ones.

A seed decides op, dtype, sizes and numbers. Rows of an input are of a kind: ordinary numbers, or such as overflow.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.conformance.oracle.overflow.honest import MOMENTS, calculation_dtype, orders, transform_by_matrix
from torchstone.conformance.program.program import Call, Program, Ref

Answers = Iterator[tuple[str, Tensor]]

PLAIN, ONE_SIGN, MIXED, EDGE = "plain", "one sign", "mixed", "edge"
KINDS = (PLAIN, ONE_SIGN, MIXED, EDGE)


@dataclass(frozen=True)
class Generated:
    """``answers``: right ones, in the calculation's dtype, of the inputs in that dtype. ``rows``: the kind of each row
    of the result (its first dim), where the numbers of a row stay in it."""

    family: str
    program: Program
    inputs: tuple[Tensor, ...]
    answers: Callable[..., Answers]
    rows: tuple[str, ...] = ()


class Draw:
    """What a seed decides."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.dtype = self.rng.choice((torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16))
        self.largest = torch.finfo(self.dtype).max

    def plain(self, *shape: int) -> Tensor:
        """Ordinary numbers, of size 0.5 to 4, both signs."""
        size = 2.0 ** (3 * torch.rand(shape, generator=self.generator, dtype=torch.float64) - 1)
        return size * (torch.randint(0, 2, shape, generator=self.generator) * 2 - 1)

    def row(self, kind: str, length: int, power: float = 1.0) -> Tensor:
        """Numbers of one kind. With ``power`` 0.5 it is their products that are near the end of the range."""
        top = self.largest**power
        values = self.plain(length)
        if kind == PLAIN:
            return values
        if kind == EDGE:
            return values * (top / (4.0 * length) * self.rng.choice((0.5, 1.0, 2.0)))
        large = torch.rand(length, generator=self.generator, dtype=torch.float64) < 0.7
        large[: 1 + length // 2] = True
        size = top * (
            1.0 - torch.rand(length, generator=self.generator, dtype=torch.float64) * self.rng.choice((0, 0.6))
        )
        signs = torch.ones(length) if kind == ONE_SIGN else torch.sign(self.plain(length))
        values = torch.where(large, size * signs, values.abs() if kind == ONE_SIGN else values)
        return values[torch.randperm(length, generator=self.generator)]

    def table(self, rows: int, length: int, power: float = 1.0) -> tuple[Tensor, tuple[str, ...]]:
        """Rows, the first one plain."""
        kinds = (PLAIN, *(self.rng.choice(KINDS) for _ in range(rows - 1)))
        return torch.stack([self.row(kind, length, power) for kind in kinds]), kinds

    def given(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.to(self.dtype) if t.is_floating_point() else t for t in tensors)


def call(target: str, inputs: int, *args: Any, **kwargs: Any) -> Program:
    names = tuple(f"x{k}" for k in range(inputs))
    return Program(names, (Call(f"torch.{target}", args, kwargs, "r0"),), Ref("r0"))


X, Y, Z, W = (Ref(f"x{k}") for k in range(4))


def sums(draw: Draw) -> Generated:
    x, kinds = draw.table(5, draw.rng.randint(2, 9))
    op = draw.rng.choice(("sum", "mean"))

    def answers(x: Tensor) -> Answers:
        for name, total in orders(draw.rng):
            yield name, total(x) if op == "sum" else total(x) / x.shape[-1]
        if op == "mean":
            yield "divided first", (x / x.shape[-1]).sum(-1)

    return Generated(op, call(op, 1, X, -1), draw.given(x), answers, kinds)


def contractions(draw: Draw) -> Generated:
    length = draw.rng.randint(2, 8)
    power = draw.rng.choice((1.0, 0.5))
    x, kinds = draw.table(4, length, power)
    y = draw.plain(length, 3) if power == 1.0 else torch.stack([draw.row(MIXED, length, 0.5) for _ in range(3)], 1)
    bias = draw.plain(3) * (draw.rng.choice((1.0, draw.largest / 8)))
    op = draw.rng.choice(("matmul", "linear", "conv"))
    if power != 1.0 or (op == "linear" and bias.abs().max() > 100):
        kinds = ()

    def answers(x: Tensor, y: Tensor, bias: Tensor) -> Answers:
        terms = x[:, None, :] * y.mT[None]
        if op == "linear":
            terms = torch.cat([terms, bias.expand(x.shape[0], 3)[..., None]], -1)
        for name, total in orders(draw.rng):
            yield name, total(terms)[..., None] if op == "conv" else total(terms)

    if op == "conv":
        program = Program(
            ("x0", "x1", "x2"),
            (
                Call("torch.Tensor.unsqueeze", (X, 1), {}, "a"),
                Call("torch.Tensor.t", (Y,), {}, "b"),
                Call("torch.Tensor.unsqueeze", (Ref("b"), 1), {}, "c"),
                Call("torch.nn.functional.conv1d", (Ref("a"), Ref("c")), {}, "r0"),
            ),
            Ref("r0"),
        )
    elif op == "linear":
        steps = (
            Call("torch.Tensor.t", (Y,), {}, "a"),
            Call("torch.nn.functional.linear", (X, Ref("a"), Z), {}, "r0"),
        )
        program = Program(("x0", "x1", "x2"), steps, Ref("r0"))
    else:
        program = call("matmul", 3, X, Y)
    return Generated(op, program, draw.given(x, y, bias), answers, kinds)


def bilinear(draw: Draw) -> Generated:
    n, m = draw.rng.randint(2, 4), draw.rng.randint(2, 4)
    power = draw.rng.choice((1.0, 0.5, 0.34))
    x, kinds = draw.table(4, n, power)
    y = draw.plain(4, m) if power == 1.0 else torch.stack([draw.row(MIXED, m, power) for _ in range(4)])
    w = draw.plain(2, n, m) if power > 0.4 else draw.row(MIXED, 2 * n * m, power).reshape(2, n, m)

    def answers(x: Tensor, w: Tensor, y: Tensor) -> Answers:
        for name, total in orders(draw.rng):
            first = total(x[:, None, None, :] * w.mT[None])  # b, o, m
            yield f"the left first, {name}", total(first * y[:, None, :])
            last = total(w[None] * y[:, None, None, :])  # b, o, n
            yield f"the right first, {name}", total(last * x[:, None, :])
            outer = (x[:, :, None] * y[:, None, :])[:, None] * w[None]
            yield f"the operands first, {name}", total(outer.flatten(-2))

    program = call("nn.functional.bilinear", 3, X, Z, Y)
    return Generated("bilinear", program, draw.given(x, w, y), answers, kinds if power == 1.0 else ())


def product(a: Tensor, b: Tensor) -> Tensor:
    """Of a machine that has no subnormal numbers."""
    c = a * b
    return torch.where(c.abs() < torch.finfo(c.dtype).tiny, 0.0 * c, c)


def factors(draw: Draw) -> Generated:
    length = draw.rng.randint(3, 8)
    top = math.log2(draw.largest) * draw.rng.choice((0.3, 0.6, 0.9))
    powers = (torch.rand(4, length, generator=draw.generator, dtype=torch.float64) * 2 - 1) * top
    x = 2.0**powers * torch.sign(draw.plain(4, length))
    x[0] = draw.plain(length)
    kinds = (PLAIN, MIXED, MIXED, MIXED)
    op = draw.rng.choice(("prod", "scatter_reduce", "index_reduce"))
    base = torch.ones(4, 2, dtype=torch.float64) if draw.rng.random() < 0.5 else draw.plain(4, 2)
    index = torch.zeros(4, length, dtype=torch.int64)
    included = draw.rng.random() < 0.5

    def answers(x: Tensor, base: Tensor, index: Tensor) -> Answers:
        terms = torch.cat([base[:, :1], x], -1) if op != "prod" and included else x
        for name, total in orders(draw.rng, product):
            out = total(terms)
            yield name, out if op == "prod" else torch.stack([out, base[:, 1]], -1)

    if op == "prod":
        program = call("prod", 3, X, -1)
    elif op == "scatter_reduce":
        program = call("scatter_reduce", 3, Y, 1, Z, X, "prod", include_self=included)
    else:
        index = index[0]
        program = call("index_reduce", 3, Y, 1, Z, X, "prod", include_self=included)
    return Generated(op + " of factors", program, draw.given(x, base, index), answers, kinds)


def accumulating(draw: Draw) -> Generated:
    length = draw.rng.randint(2, 8)
    x, kinds = draw.table(4, length)
    base = draw.plain(4, 2) if draw.rng.random() < 0.5 else torch.stack([draw.row(kind, 2) for kind in kinds])
    op = draw.rng.choice(("scatter_add", "index_add", "index_put", "put", "scatter_reduce"))
    rows, columns = torch.arange(4)[:, None].expand(4, length), torch.zeros(4, length, dtype=torch.int64)

    def answers(base: Tensor, x: Tensor, *index: Tensor) -> Answers:
        for name, total in orders(draw.rng):
            yield name, torch.stack([total(torch.cat([base[:, :1], x], -1)), base[:, 1]], -1)
            yield f"{name}, the base last", torch.stack([total(x) + base[:, 0], base[:, 1]], -1)

    index = {"scatter_add": columns, "scatter_reduce": columns, "index_add": columns[0]}.get(op, rows * 2)
    programs = {
        "scatter_add": call("scatter_add", 3, X, 1, Z, Y),
        "scatter_reduce": call("scatter_reduce", 3, X, 1, Z, Y, "sum"),
        "index_add": call("index_add", 3, X, 1, Z, Y),
        "put": call("put", 3, X, Z, Y, True),
        "index_put": call("index_put", 4, X, [Z, W], Y, True),
    }
    last = (rows, columns) if op == "index_put" else (index,)
    inputs = draw.given(base, x, *last)
    return Generated(op, programs[op], inputs, answers, kinds)


def norms(draw: Draw) -> Generated:
    length = draw.rng.randint(3, 8)
    power = draw.rng.choice((1.0, 0.5))
    x, kinds = draw.table(4, length, power)
    op = draw.rng.choice(("var", "std", "layer_norm", "group_norm", "instance_norm", "batch_norm"))
    per_row = op in ("group_norm", "batch_norm", "instance_norm")
    affine = op not in ("var", "std")
    weight = draw.plain(4 if per_row else length) * draw.rng.choice((1.0, draw.largest / 8))
    bias = draw.plain(4 if per_row else length) * draw.rng.choice((1.0, draw.largest / 8))
    eps = draw.rng.choice((1e-3, 0.5))
    if affine and max(weight.abs().max(), bias.abs().max()) > 100:
        kinds = ()

    def answers(x: Tensor, weight: Tensor, bias: Tensor) -> Answers:
        w, b = (t[:, None] if per_row else t for t in (weight, bias))
        for name, moments in MOMENTS.items():
            mean, squares = moments(x)
            if not affine:
                variance = squares / (x.shape[-1] - 1)
                yield name, variance if op == "var" else variance.sqrt()
                continue
            mean, scale = mean[:, None], (squares / x.shape[-1] + eps).rsqrt()[:, None]
            shape = (lambda t: t[None]) if per_row else (lambda t: t)
            yield f"{name}, as documented", shape((x - mean) * scale * w + b)
            yield f"{name}, the weight into the scale", shape((x - mean) * (scale * w) + b)

    functional = f"nn.functional.{op}"
    if not affine:
        program = call(op, 3, X, -1)
    elif op == "layer_norm":
        program = call(functional, 3, X, [length], Y, Z, eps)
    else:
        last = {
            "group_norm": (functional, (4, Y, Z, eps), {}),
            "instance_norm": (functional, (None, None, Y, Z), {"eps": eps}),
            "batch_norm": (functional, (None, None, Y, Z), {"training": True, "eps": eps}),
        }[op]
        steps = (
            Call("torch.Tensor.unsqueeze", (X, 0), {}, "a"),
            Call(f"torch.{last[0]}", (Ref("a"), *last[1]), last[2], "r0"),
        )
        program = Program(("x0", "x1", "x2"), steps, Ref("r0"))
    if op in ("var", "std"):
        return Generated(op, program, draw.given(x, weight, bias), answers, kinds)
    return Generated(op, program, draw.given(x, weight, bias), answers, () if per_row else kinds)


def transforms(draw: Draw) -> Generated:
    if draw.dtype not in (torch.float32, torch.float64):
        draw.dtype, draw.largest = torch.float32, torch.finfo(torch.float32).max
    length = draw.rng.randint(2, 10)
    real, kinds = draw.table(4, length)
    imaginary = torch.stack([draw.row(kind, length) for kind in kinds])
    forward, norm = draw.rng.random() < 0.5, draw.rng.choice(("backward", "ortho", "forward"))
    op = draw.rng.choice(("c2c", "r2c", "c2r"))
    divides = "forward" if op == "r2c" or (op == "c2c" and forward) else "backward"
    scale = 1 / math.sqrt(length) if norm == "ortho" else 1 / length if norm == divides else 1.0

    def answers(real: Tensor, imaginary: Tensor) -> Answers:
        ahead = op == "r2c" or (op == "c2c" and forward)
        x = torch.complex(real, imaginary if op != "r2c" else torch.zeros_like(real))
        if op == "c2r":
            half = x[..., : length // 2 + 1].clone()
            half.imag[..., 0] = 0.0
            if length % 2 == 0:
                half.imag[..., -1] = 0.0
            rest = half[..., 1 : (length + 1) // 2].flip(-1).conj()
            x = torch.cat([half, rest], -1)
        for first in (True, False):
            out = transform_by_matrix(x, ahead, scale, first)
            out = out.real if op == "c2r" else out[..., : length // 2 + 1] if op == "r2c" else out
            yield f"by its matrix, {'normalized first' if first else 'normalized last'}", out
        plain = {"c2c": torch.fft.fft if forward else torch.fft.ifft, "r2c": torch.fft.rfft}.get(op)
        if plain is not None:
            none = "backward" if ahead else "forward"
            given = real if op == "r2c" else x
            yield "normalized after", plain(given, norm=none) * scale
            yield "normalized before", plain(given * scale, norm=none)

    name = {"c2c": "fft" if forward else "ifft", "r2c": "rfft", "c2r": "irfft"}[op]
    last = () if op == "r2c" else (Call("torch.complex", (X, Y), {}, "a"),)
    args = (X,) if op == "r2c" else (Ref("a"),)
    kwargs = {"n": length, "norm": norm}
    program = Program(("x0", "x1"), (*last, Call(f"torch.fft.{name}", args, kwargs, "r0")), Ref("r0"))
    return Generated(f"fft.{name}", program, draw.given(real, imaginary), answers, kinds)


def softmax_gradients(draw: Draw) -> Generated:
    length = draw.rng.randint(2, 7)
    grad, kinds = draw.table(4, length)
    large = draw.rng.random() < 0.5
    output = draw.table(4, length, 0.5)[0] if large else draw.plain(4, length).softmax(-1)
    columns = draw.rng.random() < 0.5

    def answers(grad: Tensor, output: Tensor) -> Answers:
        for name, total in orders(draw.rng):
            s = total(grad * output)[:, None]
            for form, value in (("apart", grad * output - output * s), ("together", (grad - s) * output)):
                yield f"{form}, {name}", value.t() if columns else value

    if columns:
        steps = [Call("torch.Tensor.t", (value,), {}, name) for name, value in (("a", X), ("b", Y))]
        args = (Ref("a"), Ref("b"), 0, draw.dtype)
    else:
        steps, args = [], (X, Y, 1, draw.dtype)
    steps.append(Call("torch.ops.aten._softmax_backward_data", args, {}, "r0"))
    program = Program(("x0", "x1"), tuple(steps), Ref("r0"))
    return Generated("softmax backward", program, draw.given(grad, output), answers, () if columns or large else kinds)


FAMILIES = (sums, contractions, bilinear, factors, accumulating, norms, transforms, softmax_gradients)


def generated(seed: int) -> Generated:
    """The program of a seed."""
    return FAMILIES[seed % len(FAMILIES)](Draw(seed))


def right_answers(case: Generated) -> Answers:
    """What other compilers may give, in the dtype of eager's result."""
    dtype = case.inputs[0].dtype
    inputs = [t.to(calculation_dtype(dtype)) if t.is_floating_point() else t for t in case.inputs]
    for name, value in case.answers(*inputs):
        yield name, value if value.is_complex() else value.to(dtype)


def wrong_answers(case: Generated, eager: Tensor, rng: random.Random) -> Answers:
    """What no compiler may give: a row of ordinary numbers beside the others that is not right, the wrong infinity."""
    for row, kind in enumerate(case.rows):
        if kind != PLAIN:
            continue
        at = (row, *(rng.randrange(size) for size in eager.shape[1:]))
        wrong = (math.inf, -math.inf, math.nan, float(eager[at].abs()) * 1.5 + 1.0)
        for value in wrong:
            answer = eager.clone()
            answer[at] = value
            yield f"{value} for {eager[at].item()} of ordinary numbers", answer
    if case.family not in ("sum", "mean"):
        return
    for row, kind in itertools.product(range(len(case.rows)), (ONE_SIGN,)):
        if case.rows[row] != kind:
            continue
        for value in (-math.inf, math.nan, 1.0):
            answer = eager.clone()
            answer[row] = value
            yield f"{value} for terms of one sign", answer
