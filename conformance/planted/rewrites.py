"""Bugs of rewrites: chains of ops, facts of the example taken for facts of the program, in-place ops on views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torchstone.conformance.planted.bug import Rule, ask, bugs, steps
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    f32,
    floats,
    i64,
    mixed,
    ramp,
    same_twice,
)
from torchstone.conformance.planted.op_call import OpCall
from torchstone.conformance.program.literals import Ref


def chain(first: str, second: str, rewrite: Callable[[OpCall, OpCall], Any]) -> Rule:
    """``second`` of a result of ``first`` is given by ``rewrite(second's call, first's call)``."""

    def rule(call: OpCall) -> Any:
        if call.name == second and "made" in call.state:
            given, maker, calls = call.state["made"]
            same = any(t.data_ptr() == given.data_ptr() and t.shape == given.shape for t in call.tensors)
            if same and calls == call.state["calls"]:
                return rewrite(call, maker)
        out = call.right()
        if call.name == first and isinstance(out, torch.Tensor):
            call.state["made"] = (out, call, call.state["calls"])
        return out

    return rule


def _is(call: OpCall, name: str, tensor: torch.Tensor) -> bool:
    value = call[name]
    return isinstance(value, torch.Tensor) and value.data_ptr() == tensor.data_ptr()


def _cancelled_product(div: OpCall, mul: OpCall) -> Any:
    same = isinstance(div["other"], torch.Tensor) and _is(mul, "other", div["other"])
    return mul["self"].clone() if same and not div.arguments.get("rounding_mode") else div.right()


def _cancelled_difference(add: OpCall, sub: OpCall) -> Any:
    same = isinstance(add["other"], torch.Tensor) and _is(sub, "other", add["other"])
    return sub["self"].clone() if same and add["alpha"] == sub["alpha"] else add.right()


def _without_round_trip(back: OpCall, there: OpCall) -> Any:
    return there.x.clone() if back["dtype"] is there.x.dtype and back["dtype"] is not None else back.right()


def _folded_without_eps(norm: OpCall, conv: OpCall) -> Any:
    return norm.right(eps=0.0) if not norm["training"] else norm.right()


def _complement(call: OpCall, comparison: OpCall) -> Any:
    return comparison["self"] >= comparison["other"]


def _quotient(x: torch.Tensor, y: torch.Tensor) -> Any:
    return steps(("torch.mul", x, y), ("torch.div", Ref("y0"), y))


def _difference(x: torch.Tensor, y: torch.Tensor) -> Any:
    return steps(("torch.sub", x, y), ("torch.add", Ref("y0"), y))


def _root(x: torch.Tensor) -> Any:
    return steps(("torch.mul", x, x), ("torch.sqrt", Ref("y0")))


def _conv_norm(eps: float) -> Any:
    return steps(
        ("torch.nn.functional.conv1d", mixed(2, 1, 4), mixed(2, 1, 2)),
        ("torch.nn.functional.batch_norm", Ref("y0"), f32(0, 0), f32(1, 2), None, None, False, 0.1, eps),
    )


CHAINS_OF_OPS_REWRITTEN = bugs(
    "chains of ops rewritten",
    (
        "log-of-exp-cancelled",
        "x, where exp(x) overflows or underflows",
        "log of exp",
        "algebraic simplification",
        "exp log",
        chain("exp", "log", lambda log, exp: exp.x.clone()),
        lambda: steps(("torch.exp", f32(200, 1)), ("torch.log", Ref("y0"))),
        lambda: steps(("torch.exp", f32(2, 1)), ("torch.sin", Ref("y0"))),
    ),
    (
        "quotient-of-product-cancelled",
        "x, where x * y overflows or y is 0",
        "x * y / y",
        "algebraic simplification",
        "mul div",
        chain("mul", "div", _cancelled_product),
        lambda: _quotient(f32(1, 2), f32(0, 1)),
        lambda: ask("torch.div", f32(1, 2), f32(2, 1)),
    ),
    (
        "sum-of-difference-cancelled",
        "x, where y is infinite or large",
        "x - y + y",
        "reassociation",
        "sub add",
        chain("sub", "add", _cancelled_difference),
        lambda: _difference(f32(1, 2), f32(INF, 1e10)),
        lambda: ask("torch.add", f32(1, 2), f32(2, 1)),
    ),
    (
        "root-of-square-cancelled",
        "x, where it is negative",
        "sqrt(x * x)",
        "algebraic simplification",
        "mul sqrt",
        chain("mul", "sqrt", lambda sqrt, mul: mul.x.clone() if same_twice(mul) else sqrt.right()),
        lambda: _root(f32(-2, 1)),
        lambda: _root(f32(2, 1)),
    ),
    (
        "cast-round-trip-removed",
        "not truncated or rounded",
        "a conversion to another dtype and back",
        "redundant casts removed",
        "_to_copy",
        chain("_to_copy", "_to_copy", _without_round_trip),
        lambda: steps(("torch.Tensor.int", f32(1.5)), ("torch.Tensor.float", Ref("y0"))),
        lambda: steps(("torch.Tensor.double", f32(1.5)), ("torch.Tensor.int", Ref("y0"))),
    ),
    (
        "complement-of-comparison",
        "false for NaN",
        "logical_not of lt",
        "the opposite comparison",
        "lt logical_not",
        chain("lt", "logical_not", _complement),
        lambda: steps(("torch.lt", f32(NAN, 1), f32(1, 2)), ("torch.logical_not", Ref("y0"))),
        lambda: steps(("torch.lt", f32(3, 1), f32(1, 2)), ("torch.logical_not", Ref("y0"))),
    ),
    (
        "batch-norm-folded-without-eps",
        "eps is left out",
        "batch_norm in evaluation after a convolution",
        "weights folded",
        "convolution native_batch_norm",
        chain("convolution", "native_batch_norm", _folded_without_eps),
        lambda: _conv_norm(0.5),
        lambda: _conv_norm(0.0),
    ),
    (
        "sum-of-repeated",
        "the sum of one of the copies",
        "a sum over the dim that repeat made longer",
        "broadcast moved past the reduction",
        "repeat sum",
        chain(
            "repeat", "sum", lambda total, repeat: repeat.x.sum() if not total.arguments.get("dim") else total.right()
        ),
        lambda: steps(("torch.Tensor.repeat", ramp(3), 2), ("torch.sum", Ref("y0"))),
        lambda: steps(("torch.Tensor.repeat", ramp(3), 1), ("torch.sum", Ref("y0"))),
    ),
)


def assumed(fact: Callable[[OpCall], bool], wrong: Rule) -> Rule:
    """The wrong rule wherever the first call of the op had the fact."""

    def rule(call: OpCall) -> Any:
        key = ("fact", call.name, call.x.shape)
        if key not in call.state:
            call.state[key] = bool(fact(call))
            return call.right()
        return wrong(call) if call.state[key] else call.right()

    return rule


def _in_order(call: OpCall) -> bool:
    return call.x.dim() == 1 and not call["descending"] and bool((call.x[1:] >= call.x[:-1]).all())


def _as_it_is(call: OpCall) -> Any:
    return call["self"].clone(), torch.arange(call["self"].numel())


def _where(one: bool, other: bool) -> Any:
    return ask("torch.where", torch.tensor([one, other]), f32(1, 2), f32(3, 4))


FACTS_OF_THE_EXAMPLE = bugs(
    "facts of the example",
    (
        "no-nan-in-example",
        "false",
        "isnan of later calls, if the first had no NaN",
        "speculation without a guard",
        "isnan",
        assumed(lambda c: not torch.isnan(c.x).any(), lambda c: torch.zeros_like(c.right())),
        lambda: ask("torch.isnan", f32(1, 2)).again(f32(NAN, 2)),
        lambda: ask("torch.isnan", f32(1, NAN)).again(f32(NAN, 2)),
    ),
    (
        "clamp-removed",
        "not clamped",
        "later calls, if the first was within the bounds",
        "range of the example",
        "clamp relu hardtanh",
        assumed(lambda c: torch.equal(c.right(), c.x), lambda c: c.x.clone()),
        lambda: ask("torch.relu", f32(1, 2)).again(f32(-1, 2)),
        lambda: ask("torch.relu", f32(-1, 2)).again(f32(-2, 2)),
    ),
    (
        "sort-removed",
        "as it is",
        "later calls, if the first was in order",
        "property of the example",
        "sort",
        assumed(_in_order, _as_it_is),
        lambda: ask("torch.sort", f32(1, 2)).again(f32(2, 1)),
        lambda: ask("torch.sort", f32(2, 1)).again(f32(3, 1)),
    ),
    (
        "branch-folded",
        "the branch that the example took",
        "where, if the example's condition was the same everywhere",
        "uniform branch",
        "where",
        assumed(
            lambda c: "other" in c and bool(c["condition"].all()), lambda c: c["self"].expand(c.right().shape).clone()
        ),
        lambda: _where(True, True).again(*_where(False, True).calls[0]),
        lambda: _where(True, False).again(*_where(False, True).calls[0]),
    ),
    (
        "positive-in-example",
        "x",
        "abs in later calls, if the first had no negative number",
        "sign of the example",
        "abs",
        assumed(lambda c: floats(c) and bool((c.x >= 0).all()), lambda c: c.x.clone()),
        lambda: ask("torch.abs", f32(1, 2)).again(f32(-1, 2)),
        lambda: ask("torch.abs", f32(-1, 2)).again(f32(-1, 3)),
    ),
    (
        "distinct-indices-in-example",
        "the last of the terms of an index",
        "scatter_add in later calls, if the first had no index twice",
        "plain stores chosen once",
        "scatter_add",
        assumed(
            lambda c: c["index"].numel() == c["index"].unique().numel(),
            lambda c: c["self"] + torch.zeros_like(c["self"]).scatter(c["dim"], c["index"], c["src"]),
        ),
        lambda: ask("torch.scatter_add", ramp(3), 0, i64(0, 1), f32(1, 2)).again(ramp(3), i64(0, 0), f32(1, 2)),
        lambda: ask("torch.scatter_add", ramp(3), 0, i64(0, 0), f32(1, 2)).again(ramp(3), i64(1, 1), f32(1, 2)),
    ),
)


def _row_by_row(call: OpCall) -> torch.Tensor:
    """An in-place op whose other operand is a view of the same memory, read while it is written."""
    target, other = call["self"], call["other"]
    if not isinstance(other, torch.Tensor) or other.untyped_storage().data_ptr() != target.untyped_storage().data_ptr():
        return call.right()
    if other.shape != target.shape or (other.stride() == target.stride() and other.data_ptr() == target.data_ptr()):
        return call.right()
    if target.dim() == 0:
        return call.right()
    for row, term in zip(target.unbind(0), other.unbind(0), strict=True):
        call.op(row, term)
    return target


def _with_transposed() -> Any:
    x = mixed(2, 2)
    return steps(("torch.Tensor.t", x), ("torch.Tensor.add_", x, Ref("y0")))


def _fill_span(call: OpCall) -> torch.Tensor:
    out = call.right()
    if not out.is_contiguous() and out.numel() > 1 and min(out.stride()) > 0:
        span = sum((n - 1) * s for n, s in zip(out.shape, out.stride(), strict=True)) + 1
        torch.as_strided(out, (span,), (1,), out.storage_offset()).fill_(out.reshape(-1)[0])
    return out


def _filled(step: int) -> Any:
    x = ramp(6)
    return steps(
        ("torch.Tensor.__getitem__", x, slice(None, None, step)),
        ("torch.Tensor.fill_", Ref("y0"), 7.0),
        ("torch.clone", x),
    )


def _once(call: OpCall) -> torch.Tensor:
    key = ("written", call.state["calls"], call["self"].data_ptr())
    if key in call.state:
        return call["self"]
    call.state[key] = call["self"]
    return call.right()


IN_PLACE_OPS_ON_VIEWS = bugs(
    "in-place ops on views",
    (
        "reads-what-it-wrote",
        "rows that are read have been written to already",
        "x.add_(x.t()), x.mul_(x.flip(0))",
        "copy left out: pytorch/pytorch#198270",
        "add_ sub_ mul_ div_",
        _row_by_row,
        lambda: _with_transposed(),
        lambda: ask("torch.Tensor.add_", mixed(2, 2), mixed(2, 2).T),
    ),
    (
        "fill-of-view-fills-all",
        "the elements between are filled too",
        "fill_ and zero_ of a view with gaps",
        "block store: pytorch/pytorch#198102",
        "fill_ zero_",
        lambda c: _fill_span(c),
        lambda: _filled(2),
        lambda: _filled(1),
    ),
    (
        "copy-to-expanded-source",
        "the first element for all",
        "copy_ from a source that is broadcast along more than one dim",
        "scalar broadcast",
        "copy_",
        lambda c: (
            c.right(src=c["src"].reshape(-1)[:1].expand(c["self"].shape))
            if c["src"].dim() == 1 and c["self"].dim() > 2
            else c.right()
        ),
        lambda: ask("torch.Tensor.copy_", ramp(2, 2, 2), f32(1, 2)),
        lambda: ask("torch.Tensor.copy_", ramp(2, 2), f32(1, 2)),
    ),
    (
        "second-write-lost",
        "the first of two writes to one tensor",
        "two in-place additions in one program",
        "dead store elimination",
        "add_",
        lambda c: _once(c),
        lambda: steps(
            ("torch.clone", f32(1, 2)), ("torch.Tensor.add_", Ref("y0"), 1), ("torch.Tensor.add_", Ref("y1"), 1)
        ),
        lambda: steps(("torch.clone", f32(1, 2)), ("torch.Tensor.add_", Ref("y0"), 1)),
    ),
    (
        "in-place-result-not-seen-by-view",
        "a view made before shows the old numbers",
        "an in-place op through a reshaped view",
        "view taken as a copy",
        "view",
        lambda c: c.right().clone(),
        lambda: steps(("torch.Tensor.view", f32(1, 2), (2, 1)), ("torch.Tensor.add_", Ref("y0"), 1)),
        lambda: ask("torch.Tensor.mul", f32(1, 2), 1),
    ),
)


BUGS = (
    *CHAINS_OF_OPS_REWRITTEN,
    *FACTS_OF_THE_EXAMPLE,
    *IN_PLACE_OPS_ON_VIEWS,
)
