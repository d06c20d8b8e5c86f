"""The formulas of operators that eager has no float64 of: they are what eager computes, and tell wrong from right."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.conformance.oracle.test_compare import compare
from tests.sampling import covering
from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.oracle.op_traits.references import WITHOUT_FLOAT64
from torchstone.conformance.oracle.reference.runs import Referee
from torchstone.conformance.oracle.reference.widen import float64_by_default, widen_inputs, widen_program
from torchstone.conformance.oracle.reference.without_float64 import FORMULAS, WithoutFloat64, formulas, is_float8
from torchstone.conformance.oracle.ulp import wide
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import map_leaves
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.sources import functions, opinfo

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
RESULTS = (torch.float32, torch.bfloat16, torch.float16, None, *FLOAT8)
SPECIAL = (math.inf, -math.inf, math.nan, 0.0, -0.0)


def widened(value: Any) -> Any:
    return map_leaves(value, lambda leaf: wide(leaf) if isinstance(leaf, Tensor) and is_float(leaf) else leaf)


def is_float(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating_point


def agrees(eager: Tensor, formula: Tensor, room: Tensor) -> bool:
    """Whether eager's numbers are those of the formula, ``room`` aside, rounded to eager's dtype. At the end of the
    range of a float8 they may be what a conversion gives beyond it."""
    low, high = (wide(end.float().to(eager.dtype)) for end in (formula - room, formula + room))
    found = wide(eager)
    inside = (found >= low) & (found <= high)
    beyond = ~torch.isfinite(low) | ~torch.isfinite(high)
    if is_float8(eager.dtype):
        beyond |= formula.abs() + room >= torch.finfo(eager.dtype).max
    return bool((inside | (beyond & ~torch.isfinite(found))).all())


def room_of(call: Callable[..., Tensor], *operands: Any, **options: Any) -> Tensor:
    """What roundings of float32 may add up to: a part of the sizes of all terms."""

    def size(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not is_float(leaf):
            return leaf
        return torch.where(leaf.isfinite(), leaf.abs(), 0.0)

    return call(*map(size, operands), **{name: size(leaf) for name, leaf in options.items()}) * 64 * 2.0**-23


def numbers(draw: Any, shape: tuple[int, ...], dtype: torch.dtype, special: bool) -> Tensor:
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    x = torch.randn(shape, generator=generator) * 2.0 ** draw(st.integers(-3, 3))
    if special and x.numel():
        x.view(-1)[draw(st.integers(0, x.numel() - 1))] = draw(st.sampled_from(SPECIAL))
    return x.to(dtype)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_products_of_float8_are_their_formula(data: st.DataObject) -> None:
    draw = data.draw
    rows, inner, columns = draw(st.integers(1, 9)), draw(st.integers(0, 40)), draw(st.integers(1, 9))
    special, out_dtype = draw(st.booleans()), draw(st.sampled_from(RESULTS))
    x = numbers(draw, (rows, inner), draw(st.sampled_from(FLOAT8)), special)
    y = numbers(draw, (inner, columns), draw(st.sampled_from(FLOAT8)), special)
    each = draw(st.booleans())
    scales = [
        numbers(draw, shape if each else (), torch.float32, False).abs() + 0.01 for shape in ((rows, 1), (1, columns))
    ]
    bias_dtype = draw(st.sampled_from([None, torch.float32, torch.bfloat16, torch.float16]))
    options: dict[str, Any] = {"out_dtype": out_dtype} if out_dtype else {}
    if bias_dtype:
        options["bias"] = numbers(draw, (columns,), bias_dtype, special)
    if draw(st.booleans()):
        options["scale_result"] = torch.tensor(draw(st.sampled_from([0.5, 3.0, 16.0])))
    eager = torch._scaled_mm(x, y, *scales, **options)
    call = formulas()[torch.ops.aten._scaled_mm.default]
    operands, named = widened((x, y, *scales)), widened(options)
    assert agrees(eager, call(*operands, **named), room_of(call, *operands, **named)), (x, y, scales, options)


@st.composite
def groups(draw: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Operands and the ends of groups: of rows, of columns, or along the inner dim."""
    dtype, special = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.float16])), draw(st.booleans())
    count, length = draw(st.integers(1, 4)), 8 * draw(st.integers(1, 3))
    form = draw(st.sampled_from(["rows", "columns", "inner"]))
    shapes = {"rows": ((length, 8), (count, 8, 16)), "columns": ((count, 5, 8), (8, length))}
    left, right = shapes.get(form, ((4, length), (length, 8)))
    ends = sorted(draw(st.lists(st.integers(0, length), min_size=count, max_size=count)))
    x, y = numbers(draw, left, dtype, special), numbers(draw, right, dtype, special)
    return x, y, torch.tensor(ends, dtype=torch.int32)


@settings(deadline=None, max_examples=150)
@given(groups())
def test_products_by_groups_are_their_formula(operands: tuple[Tensor, Tensor, Tensor]) -> None:
    x, y, offs = operands
    eager, call = torch._grouped_mm(x, y, offs), formulas()[torch.ops.aten._grouped_mm.default]
    exact, room = call(*widened(operands)), room_of(call, *widened(operands))
    if x.dim() != y.dim():
        written = int(offs[-1])
        eager, exact, room = (t[:written] if x.dim() == 2 else t[:, :written] for t in (eager, exact, room))
    assert agrees(eager, exact, room), operands


def cases() -> dict[str, Case]:
    found = {}
    for op in ("_scaled_mm", "nn.functional.scaled_mm", "nn.functional.grouped_mm"):
        for dtype in ("float8_e4m3fn", "float8_e5m2", "float32", "bfloat16"):
            if dtype in functions.dtypes_of(op):
                entries = functions.iterate([op], [dtype])
                found |= {entry.id: entry for entry in entries if isinstance(entry, Case)}
    return found


CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_each_row_has_a_float64_run(name: str) -> None:
    case = CASES[name]
    assert not Referee(case.program, case.args).float64.problem


@pytest.mark.parametrize("name", WITHOUT_FLOAT64.ops)
def test_eager_takes_no_float64(name: str) -> None:
    operator = {"_scaled_mm": "_scaled_mm", "_scaled_mm_v2": "nn.functional.scaled_mm"}
    case = next(case for case in CASES.values() if case.op == operator.get(name, "nn.functional.grouped_mm"))
    with pytest.raises((RuntimeError, ValueError)):
        case.program(*widened(case.args))


def test_each_operator_has_a_formula() -> None:
    assert not FORMULAS.missing()


def test_the_dtypes_that_a_formula_reads_stay() -> None:
    def dtype_of(target: str) -> Any:
        return widen_program(scaled(target, out_dtype=torch.bfloat16)).calls[0].kwargs["out_dtype"]

    assert dtype_of("torch._scaled_mm") is torch.bfloat16
    assert dtype_of("torch.softmax") is torch.float64


def scaled(target: str = "torch._scaled_mm", **options: Any) -> Program:
    names = ("x", "y", "a", "b", "bias", "scale_result")
    named = {"bias": Ref("bias"), "scale_result": Ref("scale_result")}
    return Program(names, (Call(target, tuple(map(Ref, names[:4])), named | options, "r"),), Ref("r"))


def float8_operands(each: bool) -> tuple[Tensor, ...]:
    torch.manual_seed(0)
    x, y = torch.randn(5, 24).to(torch.float8_e4m3fn), torch.randn(24, 6).to(torch.float8_e4m3fn)
    scales = (torch.rand(5, 1) + 0.5, torch.rand(1, 6) + 0.5) if each else (torch.tensor(1.5), torch.tensor(0.75))
    return x, y, *scales, torch.randn(6), torch.tensor(2.0)


Product = Callable[..., Tensor]


def answers(dtype: torch.dtype, multiply: Product, add: Product = torch.add, divide: bool = True) -> Product:
    """A backend's product of float8 numbers, its steps in float32 or float64."""

    def run(x: Tensor, y: Tensor, a: Tensor, b: Tensor, bias: Tensor, scale: Tensor) -> Tensor:
        out = add(multiply(x.float(), y.float(), a, b), bias)
        return (out / scale if divide and dtype.itemsize == 1 else out).to(dtype)

    return run


def _exactly(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return (x.double() * a) @ (y.double() * b)


RIGHT: dict[str, Product] = {
    "rounded once": _exactly,
    "the scales afterwards": lambda x, y, a, b: (x @ y) * a * b,
    "the scales at once": lambda x, y, a, b: (x @ y) * (a * b),
    "another order": lambda x, y, a, b: (x.flip(1) * a) @ (y.flip(0) * b),
}
WRONG: dict[str, Product] = {
    "no scale of x": lambda x, y, a, b: x @ (y * b),
    "no scale of y": lambda x, y, a, b: (x * a) @ y,
    "one row's scale": lambda x, y, a, b: (x * a.reshape(-1)[0] * 1.25) @ (y * b),
    "rows exchanged": lambda x, y, a, b: ((x * a) @ (y * b)).flip(0),
    "a term left out": lambda x, y, a, b: (x * a)[:, 1:] @ (y * b)[1:],
}


@pytest.mark.torture
@pytest.mark.parametrize(
    ("dtype", "each"),
    covering(
        [torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float64], [False, True], strength=1
    ),
)
def test_verdicts_on_products_of_float8(dtype: torch.dtype, each: bool) -> None:
    program, args = scaled(out_dtype=dtype), float8_operands(each)
    judged = functools.partial(compare, program)
    for name, product in RIGHT.items():
        found = judged(answers(dtype, product), *args)
        assert found.outcome in (Outcome.PASS, Outcome.ILL_CONDITIONED), (name, found)
    for name, product in WRONG.items():
        assert judged(answers(dtype, product), *args).outcome is Outcome.MISMATCH, name
    assert judged(answers(dtype, _exactly, add=lambda out, bias: out), *args).outcome is Outcome.MISMATCH
    if dtype.itemsize == 1:
        assert judged(answers(dtype, _exactly, divide=False), *args).outcome is Outcome.MISMATCH


@pytest.mark.torture
def test_products_of_float8_are_accumulated_in_float32() -> None:
    program, args = scaled(out_dtype=torch.float32), float8_operands(True)

    def in_16_bits(x: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return ((x * a).bfloat16() @ (y * b).bfloat16()).float()

    assert compare(program, answers(torch.float32, in_16_bits), *args).outcome is Outcome.MISMATCH


@pytest.mark.torture
def test_the_product_of_the_scales_may_overflow() -> None:
    x, y, _, _, bias, scale = float8_operands(False)
    args = (
        (x.float() / 64).to(x.dtype),
        (y.float() / 64).to(y.dtype),
        torch.tensor(1e24),
        torch.tensor(1e15),
        bias,
        scale,
    )
    program = scaled(out_dtype=torch.float32)
    assert torch.isfinite(program(*args)).all()
    at_once = RIGHT["the scales at once"]
    assert compare(program, answers(torch.float32, at_once), *args).outcome is Outcome.ILL_CONDITIONED
    wrong = answers(torch.float32, lambda *given: -at_once(*given).abs())
    assert compare(program, wrong, *args).outcome is Outcome.MISMATCH


GROUPED = Program(
    ("x", "y", "offs"),
    (Call("torch.nn.functional.grouped_mm", (Ref("x"), Ref("y")), {"offs": Ref("offs")}, "r"),),
    Ref("r"),
)
SHAPES = {"rows": ((8, 16), (3, 16, 8)), "columns": ((3, 4, 16), (16, 8)), "inner": ((4, 8), (8, 8))}


@pytest.mark.few(1)
@pytest.mark.parametrize("form", SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_verdicts_on_products_by_groups(form: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(shape).to(dtype) for shape in SHAPES[form])
    offs = torch.tensor([2, 5, 8], dtype=torch.int32)
    call = formulas()[torch.ops.aten._grouped_mm.default]

    def judged(answer: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Outcome:
        return compare(GROUPED, lambda *given: answer(*widened(given)).to(dtype), x, y, offs).outcome

    assert judged(call) is Outcome.PASS
    assert judged(lambda x, y, offs: call(x, y, offs - torch.tensor([1, 0, 0]))) is Outcome.MISMATCH
    assert judged(lambda x, y, offs: call(x, y, offs[[0, 0, 2]])) is Outcome.MISMATCH
    if form != "inner":
        assert judged(lambda x, y, offs: call(*(t.flip(0) if t.dim() == 3 else t for t in (x, y)), offs)) is (
            Outcome.MISMATCH
        )


@pytest.mark.few(1)
@pytest.mark.parametrize("source", [opinfo, functions], ids=["opinfo", "functions"])
def test_every_op_has_a_float64_run(source: Any) -> None:
    """A program with one that has none would be judged by eager alone, whatever its other calls are."""
    missing: dict[str, str] = {}
    for op in source.DATABASE.infos:
        if "float32" not in source.dtypes_of(op):
            continue
        for case in source.iterate([op], ["float32"], 2):
            if not isinstance(case, Case):
                continue
            try:
                case.program(*case.fresh_args())
            except Exception:  # eager refuses the sample
                continue
            try:
                with float64_by_default(), WithoutFloat64():
                    widen_program(case.program)(*widen_inputs(case.fresh_args()))
            except Exception as error:
                missing[op] = str(error)
    assert not missing


@pytest.mark.parametrize(("ulps", "outcome"), [(2, "pass"), (1000, "mismatch")])
def test_without_a_float64_run_a_number_has_the_ulps_of_what_it_was_rounded_to(ulps: int, outcome: str) -> None:
    """Of two inputs that view one memory in two dtypes there is none."""
    calls = (Call("torch.exp", (Ref("x"),), {}, "r0"), Call("torch.Tensor.double", (Ref("r0"),), {}, "r1"))
    program = Program(("x", "bits"), calls, Ref("r1"))
    x = torch.linspace(1, 2, 5)
    off = 1 + ulps * torch.finfo(torch.float32).eps / 2
    assert compare(program, lambda x, bits: x.exp().double() * off, x, x.view(torch.int32)).outcome == outcome


def test_a_program_that_quantizes_by_channels_is_judged_by_float64() -> None:
    """Digits of float32 in a float64 result of what follows: only a run in float64 tells that they are no more."""
    calls = (
        Call("torch.fake_quantize_per_channel_affine", (Ref("x"), Ref("scale"), Ref("zero"), 1, -7, 8), {}, "q"),
        Call("torch.special.modified_bessel_i1", (Ref("q"),), {}, "v"),
        Call("torch.Tensor.double", (Ref("v"),), {}, "wide"),
    )
    program = Program(("x", "scale", "zero"), calls, (Ref("q"), Ref("wide")))
    x = torch.tensor([[0.31, 4.0, 0.12], [0.7, -5.0, -0.2]])
    args = x, torch.tensor([0.1, 0.75, 0.05]), torch.zeros(3, dtype=torch.int32)

    def off_by(ulps: float, steps: float) -> Outcome:
        def run(*given: Tensor) -> Any:
            q, wide = program(*given)
            return q + steps * given[1], wide * (1 + ulps * 2.0**-23)

        return compare(program, run, *args).outcome

    assert off_by(2.0, 0.0) is Outcome.PASS
    assert off_by(1000.0, 0.0) is off_by(0.0, 1.0) is Outcome.MISMATCH
