"""Unary and binary elementwise ops, read off the op database's ufunc entries, and the few that stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.fuzz.generator.draft import Arguments, Draft
from torchstone.fuzz.generator.rules import OpRule, op_database, rules_for
from torchstone.fuzz.generator.values import STORED


def rules() -> Iterator[OpRule]:
    """Yield a rule for each elementwise op."""
    from torchstone.compiler._torch.op_database import BinaryUfuncInfo, UnaryUfuncInfo

    for op, info in op_database().items():
        family = _unary if isinstance(info, UnaryUfuncInfo) else _binary if isinstance(info, BinaryUfuncInfo) else None
        drawn = family(info) if family else None
        if drawn is not None:
            yield from rules_for(op, drawn)
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)


RANDOM = ("nn.functional.rrelu",)
OWN_ARGUMENTS = ("fill", "nn.functional.prelu", "polygamma", "special.polygamma", "mvlgamma", "nn.functional.threshold")
"""Ufuncs whose call takes more than the database's entry tells; the samples know how."""


def _unary(info: Any) -> Callable[[Draft], Arguments] | None:
    if info.name in RANDOM or info.name in OWN_ARGUMENTS:
        return None
    literals, _ = info.sample_kwargs("cpu", torch.float32, torch.ones(2))
    low, high = info.domain

    def draw(draft: Draft) -> Arguments:
        operand = draft.tensor(bounds=(-4.0 if low is None else low, 4.0 if high is None else high))
        keep = bool(literals) and draft.choices.chance(50)
        return Arguments((operand,), {k: v for k, v in literals.items() if keep or info.variant_test_name})

    return draw


DEGREES = (-2.0, 20.0)
"""The bounds of the degree of a polynomial: it is computed in so many steps."""
ROUNDING = {"no_rounding_mode": None, "floor_rounding": "floor", "trunc_rounding": "trunc"}


def _binary(info: Any) -> Callable[[Draft], Arguments] | None:
    if "jiterator" in info.name:
        return None
    rounding = ROUNDING.get(info.variant_test_name)

    def draw(draft: Draft) -> Arguments:
        left = draft.tensor(bounds=_bounds(info.lhs_make_tensor_kwargs))
        kwargs: dict[str, Any] = {} if rounding is None else {"rounding_mode": rounding}
        if info.supports_rhs_python_scalar and draft.choices.chance(25):
            mixed = not left.dtype.is_floating_point and not left.dtype.is_complex and draft.choices.chance(20)
            right: Any = draft.scalar(torch.float32 if mixed else left.dtype)
        else:
            nonzero = bool(info.rhs_make_tensor_kwargs.get("exclude_zero"))
            bounds = (0.0, 4.0) if nonzero else _bounds(info.rhs_make_tensor_kwargs)
            bounds = DEGREES if "_polynomial_" in info.name else bounds
            right = draft.broadcast(left, info.supported_dtypes("cpu"), bounds=bounds)
        if info.name in ("add", "sub", "rsub") and draft.choices.chance(15):
            kwargs["alpha"] = draft.choices.integer(-2, 3)
        return Arguments((left, right), kwargs)

    return draw


def _bounds(kwargs: dict[str, Any]) -> tuple[float, float]:
    low, high = kwargs.get("low"), kwargs.get("high")
    # The database's lower bounds are inclusive, ours open: a hair below keeps the bound itself.
    return (-4.0 if low is None else low - 1e-6, 4.0 if high is None else high)


def _where(draft: Draft) -> Arguments:
    left = draft.tensor()
    right = draft.broadcast(left, {left.dtype} if draft.choices.chance(80) else draft.dtypes)
    return Arguments((draft.broadcast(left, {torch.bool}), left, right))


def _clamp(draft: Draft) -> Arguments:
    operand = draft.tensor()
    low = draft.scalar(operand.dtype)
    return Arguments((operand,), {"min": low, "max": low + draft.choices.integer(0, 4)})


def _lerp(draft: Draft) -> Arguments:
    start = draft.tensor()
    end = draft.broadcast(start, {start.dtype})
    weight: Any = draft.choices.integer(-4, 8) / 4
    return Arguments((start, end, weight if draft.choices.chance(50) else draft.broadcast(start, {start.dtype})))


def _fused(draft: Draft) -> Arguments:
    operand = draft.tensor()
    one = draft.broadcast(operand, {operand.dtype}, bounds=(-2.0, 2.0))
    other = draft.broadcast(operand, {operand.dtype}, bounds=(0.0, 4.0))
    return Arguments((operand, one, other), {"value": draft.scalar(operand.dtype)} if draft.choices.chance(40) else {})


def _masked_fill(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, draft.broadcast(operand, {torch.bool}), draft.scalar(operand.dtype)))


def _threshold(draft: Draft) -> Arguments:
    return Arguments((draft.tensor(), draft.choices.integer(-4, 4) / 2, draft.choices.integer(-4, 4)))


def _like(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand,), {"dtype": draft.choices.pick(CASTS)} if draft.choices.chance(30) else {})


def _full_like(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, draft.scalar(operand.dtype)))


def _to(draft: Draft) -> Arguments:
    dtype = draft.choices.pick(STORED if draft.choices.chance(25) else CASTS)
    draft.needs_exact |= dtype in STORED  # these are so few that a last bit makes the difference of one
    stored = draft.choices.chance(15)
    return Arguments((draft.tensor(dtype=draft.choices.pick(STORED) if stored else None), dtype))


CASTS = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.uint8,
)

TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("where", _where),
    ("clamp", _clamp),
    ("lerp", _lerp),
    ("addcmul", _fused),
    ("addcdiv", _fused),
    ("masked_fill", _masked_fill),
    ("nn.functional.threshold", _threshold),
    ("zeros_like", _like),
    ("ones_like", _like),
    ("full_like", _full_like),
    ("fill", _full_like),
    ("to", _to),
    ("clone", lambda draft: Arguments((draft.tensor(),))),
    ("contiguous", lambda draft: Arguments((draft.tensor(),))),
)
