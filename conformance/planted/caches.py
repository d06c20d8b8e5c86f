"""Bugs of what is kept from one compilation or call to the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.planted.bug import Compile, ask, bugs
from torchstone.conformance.planted.changes import (
    f32,
    i64,
    mixed,
    ramp,
)
from torchstone.conformance.program.literals import Ref, leaves, map_leaves
from torchstone.conformance.program.program import Program


def _copies(value: Any) -> Any:
    return map_leaves(value, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _pure(fn: Program, args: tuple[Tensor, ...]) -> bool:
    """Whether the program leaves its arguments alone."""
    given = _copies(args)
    fn(*given)
    return all(torch.equal(a.resolve_conj(), b.resolve_conj()) for a, b in zip(given, args, strict=True))


def on_arguments(change: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]) -> Compile:
    """The program on other arguments: a function of those of the example and those of the call."""

    def compile(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
        baked = _copies(example)
        return lambda *args: fn(*change(baked, args))

    return compile


def _baked(which: Callable[[int, Tensor], bool]) -> Compile:
    """Some of the inputs are those of the example for ever."""
    return on_arguments(
        lambda example, args: tuple(
            b.clone() if which(i, a) and a.shape == b.shape else a
            for i, (b, a) in enumerate(zip(example, args, strict=True))
        )
    )


def _folded(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """A program of small inputs is computed when it is compiled."""
    if any(t.numel() > 8 for t in example) or not _pure(fn, example):
        return lambda *args: fn(*args)
    result = fn(*_copies(example))
    return lambda *args: _copies(result)


def _key(fn: Program, example: tuple[Tensor, ...]) -> Any:
    return tuple(call.target for call in fn.calls), tuple((t.shape, t.dtype) for t in example)


def _cached_without_literals(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    return kept.setdefault(_key(fn, example), fn)


def _cached_by_equality(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Literals compared as Python does: 1, 1.0 and True are one key, and so are 0.0 and -0.0."""
    literals = tuple(
        str(leaf) if isinstance(leaf, Ref) else leaf for call in fn.calls for leaf in leaves([call.args, call.kwargs])
    )
    names = tuple(tuple(call.kwargs) for call in fn.calls)
    try:
        return kept.setdefault((_key(fn, example), names, literals), fn)
    except TypeError:
        return fn


def _cached_by_address(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    results: dict[Any, Any] = {}

    def run(*args: Tensor) -> Any:
        if not args or not _pure(fn, args):
            return fn(*args)
        key = tuple((t.data_ptr(), t.shape, t.stride()) for t in args)
        if key not in results:
            results[key] = _copies(fn(*args))
        return _copies(results[key])

    return run


def _cached_by_shape_for_good(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Intermediate results of integers and bools are kept by shape: the first ones serve all later calls."""
    first: dict[Any, tuple[Tensor, ...]] = {}

    def run(*args: Tensor) -> Any:
        key = tuple(t.shape for t in args)
        before = first.setdefault(key, _copies(args))
        return fn(
            *(
                b.clone() if not (a.is_floating_point() or a.is_complex()) else a
                for a, b in zip(args, before, strict=True)
            )
        )

    return run


def _sticky_keywords(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Keywords that a call does not have are those of the last program that called the same function."""

    def change(call: Any) -> Any:
        known = kept.get(call.target, {})
        kept[call.target] = {
            name: v for name, v in call.kwargs.items() if not any(isinstance(leaf, Ref) for leaf in leaves([v]))
        }
        return replace(call, kwargs={**known, **call.kwargs})

    changed = fn.rewrite(change)

    def run(*args: Tensor) -> Any:
        try:
            return changed(*_copies(args)) if _pure(fn, args) else fn(*args)
        except Exception:  # the keyword of another overload
            return fn(*args)

    return run


def _replayed(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """From the third call on, the inputs of the second: recorded, and not copied again."""
    seen: list[tuple[Tensor, ...]] = []

    def run(*args: Tensor) -> Any:
        if len(seen) < 2:
            seen.append(_copies(args))
            return fn(*args)
        same = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(args, seen[1], strict=True))
        return fn(*_copies(seen[1])) if same else fn(*args)

    return run


def _rows_of_example(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Rows beyond those of the example are not written: 0."""
    rows = example[0].shape[0] if example and example[0].dim() else 0

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        if (
            args
            and args[0].dim()
            and args[0].shape[0] > rows
            and isinstance(result, Tensor)
            and result.shape[:1] == args[0].shape[:1]
        ):
            result = result.clone()
            result[rows:] = 0
        return result

    return run


def _same_seed(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Every call draws what the first one drew."""
    state: list[Tensor] = []

    def run(*args: Tensor) -> Any:
        state.append(torch.get_rng_state()) if not state else torch.set_rng_state(state[0])
        return fn(*args)

    return run


def _equal_inputs(kept: dict[Any, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Inputs that are equal in the example are one input."""
    first = [
        next(
            j
            for j, other in enumerate(example)
            if other.shape == t.shape and other.dtype is t.dtype and torch.equal(other, t)
        )
        if not t.isnan().any()
        else i
        for i, t in enumerate(example)
    ]
    return lambda *args: fn(
        *(args[place] if args[place].shape == args[i].shape else args[i] for i, place in enumerate(first))
    )


def _first_strides(example: tuple[Tensor, ...], args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Read with the strides of the example, where memory reaches."""
    out = []
    for old, arg in zip(example, args, strict=True):
        reach = sum((n - 1) * s for n, s in zip(arg.shape, old.stride(), strict=False)) + arg.storage_offset()
        fits = (
            old.shape == arg.shape
            and arg.numel()
            and (reach + 1) * arg.element_size() <= arg.untyped_storage().nbytes()
        )
        out.append(
            torch.as_strided(arg, arg.shape, old.stride(), arg.storage_offset())
            if fits and old.stride() != arg.stride()
            else arg
        )
    return tuple(out)


def _transposed(*shape: int) -> Tensor:
    return mixed(*shape).T


WHAT_IS_KEPT_BETWEEN_CALLS = bugs(
    "what is kept between calls",
    (
        "small-programs-folded",
        "the result of the example",
        "inputs of at most 8 elements",
        "inputs taken for constants",
        _folded,
        lambda: ask("torch.exp", f32(1, 2)).again(f32(3, 4)),
        lambda: ask("torch.exp", ramp(9)).again(ramp(9) / 2),
    ),
    (
        "zero-dim-inputs-baked",
        "the example's number",
        "0-d inputs of floats",
        "scalars specialized",
        _baked(lambda i, t: t.dim() == 0 and t.is_floating_point()),
        lambda: ask("torch.mul", f32(1, 2), torch.tensor(3.0)).again(f32(1, 2), torch.tensor(4.0)),
        lambda: ask("torch.mul", f32(1, 2), f32(3)).again(f32(1, 2), f32(4)),
    ),
    (
        "weights-frozen",
        "the example's",
        "inputs of two or more dims that are not the first",
        "parameters folded",
        _baked(lambda i, t: i > 0 and t.dim() > 1 and t.is_floating_point()),
        lambda: ask("torch.mm", ramp(2, 2), ramp(2, 2)).again(ramp(2, 2), ramp(2, 2) + 1),
        lambda: ask("torch.add", ramp(2), ramp(2)).again(ramp(2), ramp(2) + 1),
    ),
    (
        "masks-baked",
        "the example's",
        "bool inputs",
        "condition taken for a constant",
        _baked(lambda i, t: t.dtype is torch.bool),
        lambda: ask("torch.where", ramp(2) > 0, ramp(2), -ramp(2) - 1).again(ramp(2) > 5, ramp(2), -ramp(2) - 1),
        lambda: ask("torch.add", ramp(2), ramp(2)).again(ramp(2), ramp(2) + 1),
    ),
    (
        "cache-without-literals",
        "the program compiled first",
        "programs that differ in a literal",
        "cache key of ops and shapes",
        _cached_without_literals,
        lambda: ask("torch.add", f32(1, 2), 3).after(ask("torch.add", f32(1, 2), 5)),
        lambda: ask("torch.add", f32(1, 2), 3).after(ask("torch.add", f32(1, 2, 3), 5)),
    ),
    (
        "cache-key-by-equality",
        "the program compiled first",
        "literals that Python takes for equal: 1 and 1.0, 0.0 and -0.0",
        "hash of numbers",
        _cached_by_equality,
        lambda: ask("torch.add", i64(1, 2), 3.0).after(ask("torch.add", i64(1, 2), 3)),
        lambda: ask("torch.add", i64(1, 2), 3).after(ask("torch.add", i64(1, 2), 4)),
    ),
    (
        "cache-by-address",
        "the result of the earlier call",
        "inputs at addresses seen before",
        "results kept by data_ptr",
        _cached_by_address,
        lambda: ask("torch.exp", f32(1, 2)).again(f32(5, 6)).in_one_memory(),
        lambda: ask("torch.exp", f32(1, 2)).again(f32(1, 2)),
    ),
    (
        "integers-of-first-call",
        "those of the first call",
        "integer and bool inputs of shapes seen before",
        "index arithmetic kept by shape",
        _cached_by_shape_for_good,
        lambda: ask("torch.index_select", ramp(3), 0, i64(1)).again(ramp(3), i64(2)),
        lambda: ask("torch.exp", f32(1, 2)).again(f32(2, 3)),
    ),
    (
        "sticky-keywords",
        "the keyword of an earlier program",
        "a program that leaves out a keyword given to the same function before",
        "attributes not reset",
        _sticky_keywords,
        lambda: ask("torch.add", f32(1, 2), f32(1, 2)).after(ask("torch.add", f32(1, 2), f32(1, 2), alpha=3)),
        lambda: ask("torch.add", f32(1, 2), f32(1, 2), alpha=2).after(ask("torch.add", f32(1, 2), f32(1, 2), alpha=3)),
    ),
    (
        "replay-of-second-inputs",
        "the inputs of the second call",
        "the third and later calls",
        "recorded graph whose inputs are not copied",
        _replayed,
        lambda: ask("torch.exp", f32(1, 2)).again(f32(2, 3)).again(f32(4, 5)),
        lambda: ask("torch.exp", f32(1, 2)).again(f32(2, 3)),
    ),
    (
        "strides-of-first-call",
        "read with the strides of the example",
        "later calls of the same shapes in another layout",
        "no guard on strides",
        on_arguments(_first_strides),
        lambda: ask("torch.exp", mixed(3, 3)).again(_transposed(3, 3)),
        lambda: ask("torch.exp", mixed(3, 3)).again(mixed(3, 3) + 1),
    ),
    (
        "rows-of-first-size",
        "0 in rows beyond the example's",
        "later calls with more rows",
        "size specialized without a guard",
        _rows_of_example,
        lambda: ask("torch.exp", mixed(2, 3)).again(mixed(4, 3)),
        lambda: ask("torch.exp", mixed(4, 3)).again(mixed(2, 3)),
    ),
    (
        "equal-inputs-are-one",
        "the first of them for all",
        "inputs that are equal in the example",
        "constants with one hash shared",
        _equal_inputs,
        lambda: ask("torch.sub", f32(1, 2), f32(1, 2)).again(f32(1, 2), f32(3, 4)),
        lambda: ask("torch.sub", f32(1, 2), f32(2, 2)).again(f32(1, 2), f32(3, 4)),
    ),
    (
        "seed-of-first-call",
        "the numbers of the first call",
        "random programs called again",
        "seed captured with the graph",
        _same_seed,
        lambda: ask("torch.rand", 3).again(),
        lambda: ask("torch.exp", f32(1)).again(f32(2)),
    ),
)


BUGS = (*WHAT_IS_KEPT_BETWEEN_CALLS,)
