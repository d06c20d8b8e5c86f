"""Scalars of ops: a run-time one is taken by PyTorch's decomposition of an op that only computes with it.

Eager's ``addcdiv(x, a, b, value=v)`` is ``x + v * a / b``, and ``*`` takes a number of any value. What a decomposition
decides by (``if alpha != 1``) is specialized, like any decision of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler._torch.decompositions import whole_table
from torchstone.compiler._torch.operators import overload_name, schema_of
from torchstone.compiler._torch.tensors import storage_key
from torchstone.compiler.capture.refusals import attempt
from torchstone.compiler.capture.symbolic.numbers import NOTE, NUMBERS, takes_number
from torchstone.compiler.diagnostics import Unsupported, raise_bug
from torchstone.compiler.ir import Location, Operation

if TYPE_CHECKING:
    from torchstone.compiler.capture.trace.recorder import Recorder

aten = torch.ops.aten
# Exponents that eager's pow has a formula of its own for.
_POWERS = (0, 1, 2, 3, -1, -2, 0.5, -0.5)


def _number_tensor(number: Any, beside: torch.Tensor) -> torch.Tensor:
    """Return a 0-d tensor that promotes beside a tensor as the number does."""
    dtype = torch.int64 if isinstance(number, torch.SymInt) else torch.float64
    if dtype is torch.float64 and not (beside.dtype.is_floating_point or beside.dtype.is_complex):
        dtype = torch.get_default_dtype()
    elif beside.dim() == 0 and (beside.dtype.is_floating_point or dtype is torch.int64):
        dtype = beside.dtype
    return torch.scalar_tensor(number, dtype=dtype)  # type: ignore[arg-type]


def _pow(x: torch.Tensor, exponent: Any) -> torch.Tensor:
    if any(exponent == special for special in _POWERS):
        raise Unsupported("a power with a formula of its own")
    return torch.pow(x, _number_tensor(exponent, x))


_TENSORS = {"Scalar": "Tensor", "Tensor_Scalar": "Tensor", "Scalar_mode": "Tensor_mode", "Scalar_Other": "Tensor"}
_OURS: dict[Any, Callable[..., Any]] = {
    aten.pow.Tensor_Scalar: _pow,
    aten.pow.Scalar: lambda base, exponent: torch.pow(_number_tensor(base, exponent), exponent),
}


@cache
def _as_tensors(func: Any) -> Any:
    """Return the overload that takes a tensor where this one takes a scalar: it is given the scalar, as a 0-d one."""
    if func in _OURS:
        return None
    overload = _TENSORS.get(overload_name(func))
    other = getattr(func.overloadpacket, overload, None) if overload is not None else None
    if other is None or [a.name for a in schema_of(other).arguments] != [a.name for a in schema_of(func).arguments]:
        return None

    def call(x: torch.Tensor, number: Any, *rest: Any, **more: Any) -> Any:
        return other(x, _number_tensor(number, x) if isinstance(number, NUMBERS) else number, *rest, **more)

    return call


@cache
def _rules() -> Mapping[Any, Callable[..., Any]]:
    return {**whole_table(), **_OURS}


def decompose(
    recorder: Recorder, func: Any, leaves: Sequence[Any], args: Any, kwargs: Any, location: Location
) -> Any | None:
    """Record an op of a run-time scalar that it does not take as ops that do; return its results, None if it is taken.

    None as well where no decomposition does: the number is then specialized.
    """
    schema = schema_of(func).arguments
    if not any(_is_untaken(recorder, func, a, leaf) for a, leaf in zip(schema, leaves, strict=True)):
        return None
    if func in recorder.decomposing:
        return None
    recorder.decomposing.add(func)
    try:
        for rule in filter(None, (_as_tensors(func), _rules().get(func))):
            start = len(recorder.graph.ops)
            try:
                with attempt(), recorder.decisions.undone_on_error():
                    given, named = recorder.decisions.examples_of((args, kwargs))
                    expected = func(*given, **named)
                    with recorder, recorder.noted(location):
                        out = _fresh(rule(*args, **kwargs), leaves)
                    if not _alike(out, expected):
                        raise Unsupported("the decomposition gives another tensor")
            except Exception as error:  # anything: a decomposition of PyTorch that does not take these numbers
                raise_bug(error)
                continue
            _note(recorder.graph.ops[start:], func, location)
            return out
    finally:
        recorder.decomposing.discard(func)
    return None


def _note(ops: Sequence[Operation], func: Any, location: Location) -> None:
    """Note on ops that they are there for a number, and on the last that it is the op that was called."""
    made = [op for op in ops if op.name.startswith("aten.")]
    for op in made:
        op.location = location.noted(NOTE)
    if made:
        made[-1].location = location.noted(str(func))


def _is_untaken(recorder: Recorder, func: Any, argument: Any, leaf: Any) -> bool:
    if not isinstance(leaf, NUMBERS) or not recorder.is_value(leaf) or takes_number(func, argument):
        return False
    return not (isinstance(leaf, torch.SymInt) and "int" in str(argument.type).lower())


def _tensors(out: Any) -> list[Any]:
    return list(out) if isinstance(out, list | tuple) else [out]


def _fresh(out: Any, leaves: Sequence[Any]) -> Any:
    """Return results that are no arguments: those of an op are new."""
    given = {storage_key(t) for t in leaves if isinstance(t, torch.Tensor)}

    def fresh(t: Any) -> Any:
        return t.clone() if isinstance(t, torch.Tensor) and storage_key(t) in given else t

    return tuple(map(fresh, out)) if isinstance(out, list | tuple) else fresh(out)


def _alike(out: Any, expected: Any) -> bool:
    def alike(one: Any, other: Any) -> bool:
        if not isinstance(other, torch.Tensor):
            return one is other
        return isinstance(one, torch.Tensor) and one.dtype is other.dtype and one.shape == other.shape

    ours, theirs = _tensors(out), _tensors(expected)
    return len(ours) == len(theirs) and all(map(alike, ours, theirs))
