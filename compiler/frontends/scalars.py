"""Scalars that ops take: where one is a run-time number, and an op only computes with it, PyTorch's decomposition does.

Eager's ``addcdiv(x, a, b, value=v)`` is ``x + v * a / b``, and ``*`` takes a number of any value. What the decomposition
decides by (``if alpha != 1``) is specialized, like any decision of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.frontends.numbers import NOTE, NUMBERS, takes_number
from torchstone.compiler.ir import Location

if TYPE_CHECKING:
    from torchstone.compiler.frontends.recorder import Recorder

aten = torch.ops.aten
# Exponents that eager's pow has a formula of its own for.
_POWERS = (0, 1, 2, 3, -1, -2, 0.5, -0.5)


def _number_tensor(number: Any) -> torch.Tensor:
    return torch.scalar_tensor(number, dtype=torch.int64 if isinstance(number, torch.SymInt) else torch.float64)


def _pow(x: torch.Tensor, exponent: Any) -> torch.Tensor:
    if any(exponent == special for special in _POWERS):
        raise Unsupported("a power with a formula of its own")
    return torch.pow(x, _number_tensor(exponent))


_OURS: dict[Any, Callable[..., Any]] = {
    aten.pow.Tensor_Scalar: _pow,
    aten.pow.Scalar: lambda base, exponent: torch.pow(_number_tensor(base), exponent),
}


@cache
def _rules() -> Mapping[Any, Callable[..., Any]]:
    import torch._refs  # noqa: F401 - registers its functions; it takes a while
    from torch._decomp import decomposition_table

    return {**decomposition_table, **_OURS}


def decompose(
    recorder: Recorder, func: Any, leaves: Sequence[Any], args: Any, kwargs: Any, location: Location
) -> Any | None:
    """Record an op of a run-time scalar that it does not take as ops that do; return its results, None if it is taken.

    None as well where no decomposition does: the number is then specialized.
    """
    schema = func._schema.arguments
    if not any(_is_untaken(recorder, func, a, leaf) for a, leaf in zip(schema, leaves, strict=True)):
        return None
    rule = _rules().get(func)
    if rule is None or func in recorder.decomposing:
        return None
    start = len(recorder.graph.ops)
    recorder.decomposing.add(func)
    try:
        with recorder.decisions.undone_on_error():
            expected = func(*args, **kwargs)
            with recorder, recorder.noted(location):
                out = _fresh(rule(*args, **kwargs), leaves)
            if not _alike(out, expected):
                raise Unsupported("the decomposition gives another tensor")
    except Exception:
        return None
    finally:
        recorder.decomposing.discard(func)
    made = [op for op in recorder.graph.ops[start:] if op.name.startswith("aten.")]
    for op in made:
        op.location = location.noted(NOTE)
    if made:
        made[-1].location = location.noted(str(func))
    return out


def _is_untaken(recorder: Recorder, func: Any, argument: Any, leaf: Any) -> bool:
    if not isinstance(leaf, NUMBERS) or not recorder.is_value(leaf) or takes_number(func, argument):
        return False
    return not (isinstance(leaf, torch.SymInt) and "int" in str(argument.type).lower())


def _tensors(out: Any) -> list[Any]:
    return list(out) if isinstance(out, list | tuple) else [out]


def _fresh(out: Any, leaves: Sequence[Any]) -> Any:
    """Return results that are no arguments: those of an op are new."""
    given = {t.untyped_storage()._cdata for t in leaves if isinstance(t, torch.Tensor)}

    def fresh(t: Any) -> Any:
        return t.clone() if isinstance(t, torch.Tensor) and t.untyped_storage()._cdata in given else t

    return type(out)(map(fresh, out)) if isinstance(out, list | tuple) else fresh(out)


def _alike(out: Any, expected: Any) -> bool:
    def alike(one: Any, other: Any) -> bool:
        if not isinstance(other, torch.Tensor):
            return one is other
        return isinstance(one, torch.Tensor) and one.dtype is other.dtype and one.shape == other.shape

    ours, theirs = _tensors(out), _tensors(expected)
    return len(ours) == len(theirs) and all(map(alike, ours, theirs))
