"""Reductions, scans and sorts: one operand, one dim or several, the rest of it kept or dropped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torchstone.fuzz.generator.draft import Arguments, Draft
from torchstone.fuzz.generator.rules import OpRule, op_database, rules_for

TIES = ("argmax", "argmin")
"""Reductions whose result is open when elements tie."""


def rules() -> Iterator[OpRule]:
    """Yield a rule for each reduction, and for the ops that run along one dim."""
    from torchstone.compiler._torch.op_database import ReductionOpInfo

    for op, info in op_database().items():
        if isinstance(info, ReductionOpInfo) and "masked" not in op:
            yield from rules_for(op, _reduction(info))
    for op, drawn in TABLE:
        yield from rules_for(op, drawn)


def _reduction(info: Any) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        operand = draft.tensor(distinct=info.name in TIES)
        if info.variant_test_name == "unbiased":
            return Arguments((operand,), {"unbiased": draft.choices.chance(50)})
        if not draft.choices.chance(75):
            return Arguments((operand,))
        several = info.supports_multiple_dims and operand.dim > 0 and draft.choices.chance(50)
        kwargs: dict[str, Any] = {"dim": draft.axes(operand) if several else draft.axis(operand)}
        if draft.choices.chance(40):
            kwargs["keepdim"] = True
        if info.name in ("std", "var") and draft.choices.chance(40):
            kwargs["correction"] = draft.choices.integer(0, 2)
        return Arguments((operand,), kwargs)

    return draw


def _along(distinct: bool = False, bounds: tuple[float, float] = (-4.0, 4.0)) -> Callable[[Draft], Arguments]:
    def draw(draft: Draft) -> Arguments:
        operand = draft.tensor(distinct=distinct, bounds=bounds)
        return Arguments((operand, draft.axis(operand)))

    return draw


def _whole(distinct: bool = False) -> Callable[[Draft], Arguments]:
    return lambda draft: Arguments((draft.tensor(distinct=distinct),))


def _softmax(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand,), {"dim": draft.axis(operand)})


def _several(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    kwargs = {"keepdim": True} if draft.choices.chance(40) else {}
    return Arguments((operand, draft.axes(operand)), kwargs)


def _moments(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3, 4))
    return Arguments((operand,), {"dim": draft.axes(operand), "correction": draft.choices.integer(0, 1)})


def _sort(draft: Draft) -> Arguments:
    operand = draft.tensor(distinct=True)
    return Arguments((operand,), {"dim": draft.axis(operand), "descending": draft.choices.chance(50)})


def _topk(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3), distinct=True)
    dim = draft.axis(operand)
    return Arguments((operand, draft.choices.integer(0, operand.shape[dim]), dim))


def _kthvalue(draft: Draft) -> Arguments:
    operand = draft.tensor(ranks=(1, 2, 3), distinct=True)
    dim = draft.axis(operand)
    return Arguments((operand, draft.choices.integer(1, max(1, operand.shape[dim])), dim))


def _norm(draft: Draft) -> Arguments:
    operand = draft.tensor()
    return Arguments((operand, draft.choices.pick((2, 1, 0, 3, float("inf"), -float("inf")))))


TABLE: tuple[tuple[str, Callable[[Draft], Arguments]], ...] = (
    ("cumsum", _along()),
    ("cumprod", _along()),
    ("cummax", _along(distinct=True)),
    ("cummin", _along(distinct=True)),
    ("logcumsumexp", _along()),
    ("softmax", _softmax),
    ("log_softmax", _softmax),
    ("nn.functional.softmin", _softmax),
    ("logsumexp", _several),
    ("var_mean", _moments),
    ("std_mean", _moments),
    ("max.reduction_no_dim", _whole()),
    ("min.reduction_no_dim", _whole()),
    ("max.reduction_with_dim", _along(distinct=True)),
    ("min.reduction_with_dim", _along(distinct=True)),
    ("aminmax", _whole()),
    ("median", _along(distinct=True)),
    ("sort", _sort),
    ("argsort", _sort),
    ("topk", _topk),
    ("kthvalue", _kthvalue),
    ("norm", _norm),
    ("trace", lambda draft: Arguments((draft.tensor(ranks=(2,)),))),
    ("diff", lambda draft: Arguments((draft.tensor(ranks=(1, 2, 3)),))),
)
