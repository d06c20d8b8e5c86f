"""Bugs around a program: what is kept from one compilation or call to the next, memory, and facts of the example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.planted.bug import Compile, ask, bugs
from torchstone.conformance.planted.changes import c64, f32, i64, mixed, ramp
from torchstone.conformance.program.literals import Ref, leaves, map_leaves
from torchstone.conformance.program.program import Program


def _copies(value: Any) -> Any:
    return map_leaves(value, lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf)


def _rebuilt(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """The results with other leaves, in the same structure: a named tuple of PyTorch's too."""
    made = map_leaves(value, leaf)
    return made if not isinstance(value, tuple) or type(value) is tuple else type(value)(made)


def _pure(fn: Program, args: tuple[Tensor, ...]) -> bool:
    """Whether the program leaves its arguments alone."""
    given = _copies(args)
    fn(*given)
    return all(torch.equal(a.resolve_conj(), b.resolve_conj()) for a, b in zip(given, args, strict=True))


def on_arguments(change: Callable[[tuple[Tensor, ...], tuple[Tensor, ...]], tuple[Tensor, ...]]) -> Compile:
    """The program on other arguments: a function of those of the example and those of the call."""

    def compile(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
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


def _folded(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """A program of small inputs is computed when it is compiled."""
    if any(t.numel() > 8 for t in example) or not _pure(fn, example):
        return lambda *args: fn(*args)
    result = fn(*_copies(example))
    return lambda *args: _copies(result)


def _key(fn: Program, example: tuple[Tensor, ...]) -> Any:
    return tuple(call.target for call in fn.calls), tuple((t.shape, t.dtype) for t in example)


def _cached_without_literals(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    return kept.setdefault(_key(fn, example), fn)


def _cached_by_equality(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Literals compared as Python does: 1, 1.0 and True are one key, and so are 0.0 and -0.0."""
    literals = tuple(
        str(leaf) if isinstance(leaf, Ref) else leaf for call in fn.calls for leaf in leaves([call.args, call.kwargs])
    )
    names = tuple(tuple(call.kwargs) for call in fn.calls)
    try:
        return kept.setdefault((_key(fn, example), names, literals), fn)
    except TypeError:
        return fn


def _cached_by_address(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    results: dict[Any, Any] = {}

    def run(*args: Tensor) -> Any:
        if not args or not _pure(fn, args):
            return fn(*args)
        key = tuple((t.data_ptr(), t.shape, t.stride()) for t in args)
        if key not in results:
            results[key] = _copies(fn(*args))
        return _copies(results[key])

    return run


def _cached_by_shape_for_good(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
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


def _sticky_keywords(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
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


def _replayed(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """From the third call on, the inputs of the second: recorded, and not copied again."""
    seen: list[tuple[Tensor, ...]] = []

    def run(*args: Tensor) -> Any:
        if len(seen) < 2:
            seen.append(_copies(args))
            return fn(*args)
        same = all(a.shape == b.shape and a.dtype == b.dtype for a, b in zip(args, seen[1], strict=True))
        return fn(*_copies(seen[1])) if same else fn(*args)

    return run


def _static_results(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Results lie in memory that the next call uses again."""
    buffers: list[Tensor] = []

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        found = [leaf for leaf in flatten(result) if isinstance(leaf, Tensor)]
        if len(buffers) != len(found) or any(
            b.shape != t.shape or b.dtype != t.dtype for b, t in zip(buffers, found, strict=True)
        ):
            buffers[:] = [leaf.clone() for leaf in found]
        else:
            for buffer, leaf in zip(buffers, found, strict=True):
                buffer.copy_(leaf)
        following = iter(buffers)
        return _rebuilt(result, lambda leaf: next(following) if isinstance(leaf, Tensor) else leaf)

    return run


def _rows_of_example(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
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


def _without_write_back(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Inputs that are not contiguous are copied, and the copy is not written back."""

    def run(*args: Tensor) -> Any:
        return fn(*(a if a.is_contiguous() else a.clone() for a in args))

    return run


def _donated_input(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """The first input's memory is used for the result's intermediate values, if both have one shape and dtype."""

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        first = args[0] if args else None
        if (
            first is not None
            and isinstance(result, Tensor)
            and first.numel() >= 16
            and first.is_contiguous()
            and first.shape == result.shape
            and first.dtype == result.dtype
            and first.data_ptr() != result.data_ptr()
        ):
            result = result.clone()
            first.detach().copy_(result)
        return result

    return run


def _written_gaps(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """An input with gaps that is written to is stored as a block: what lies in its gaps is 0 after it."""

    def run(*args: Tensor) -> Any:
        before = _copies(args)
        result = fn(*args)
        for old, arg in zip(before, args, strict=True):
            if (
                not arg.is_contiguous()
                and arg.numel() > 1
                and arg.dim()
                and not torch.equal(old, arg)
                and min(arg.stride()) > 0
            ):
                span = sum((n - 1) * s for n, s in zip(arg.shape, arg.stride(), strict=True)) + 1
                kept_values = arg.clone()
                torch.as_strided(arg, (span,), (1,), arg.storage_offset()).zero_()
                arg.copy_(kept_values)
        return result

    return run


def _same_memory(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """A result that is equal to an input is the input: a copy taken for nothing."""

    def run(*args: Tensor) -> Any:
        result = fn(*args)
        if isinstance(result, Tensor):
            for arg in args:
                if arg.dtype is result.dtype and arg.shape == result.shape and torch.equal(arg, result):
                    return arg
        return result

    return run


def _equal_results(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Results that are equal are one tensor."""

    def run(*args: Tensor) -> Any:
        seen: list[Tensor] = []

        def leaf(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            for one in seen:
                if one.shape == value.shape and one.dtype is value.dtype and one.numel() and torch.equal(one, value):
                    return one
            seen.append(value)
            return value

        result = fn(*args)
        return _rebuilt(result, leaf)

    return run


def _same_seed(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
    """Every call draws what the first one drew."""
    state: list[Tensor] = []

    def run(*args: Tensor) -> Any:
        state.append(torch.get_rng_state()) if not state else torch.set_rng_state(state[0])
        return fn(*args)

    return run


def _equal_inputs(kept: dict[str, Any], fn: Program, example: tuple[Tensor, ...]) -> Callable[..., Any]:
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


def _at_start(example: tuple[Tensor, ...], args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.as_strided(a, a.shape, a.stride(), 0) if a.storage_offset() else a for a in args)


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


CACHES = bugs(
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


def _lazily(bit: str) -> Tensor:
    return c64(1 + 2j, 3 - 1j).conj() if bit == "conj" else c64(1 + 2j, 3 - 1j).conj().imag


MEMORY = bugs(
    "memory of inputs and results",
    (
        "conjugate-bit-dropped",
        "not conjugated",
        "lazily conjugated inputs",
        "memory read without the bit: pytorch/pytorch#171852",
        on_arguments(lambda example, args: tuple(a.conj() if a.is_conj() else a for a in args)),
        lambda: ask("torch.exp", _lazily("conj")),
        lambda: ask("torch.exp", c64(1 + 2j)),
    ),
    (
        "negative-bit-dropped",
        "not negated",
        "lazily negated inputs: the imaginary part of a conjugate",
        "memory read without the bit",
        on_arguments(lambda example, args: tuple(torch.ops.aten._neg_view(a) if a.is_neg() else a for a in args)),
        lambda: ask("torch.exp", _lazily("neg")),
        lambda: ask("torch.exp", f32(1)),
    ),
    (
        "offset-ignored",
        "read from the start of the memory",
        "inputs with an offset",
        "pointer of the storage in place of the tensor's: intel/torch-xpu-ops#1656",
        on_arguments(_at_start),
        lambda: ask("torch.exp", ramp(5)[2:]),
        lambda: ask("torch.exp", ramp(5)[:3]),
    ),
    (
        "write-to-copy",
        "the input stays as it was",
        "inputs written to that are not contiguous",
        "copy that is not written back",
        _without_write_back,
        lambda: ask("torch.Tensor.add_", _transposed(2, 2), 1),
        lambda: ask("torch.Tensor.add_", mixed(2, 2), 1),
    ),
    (
        "input-as-scratch",
        "the first input is overwritten",
        "a result of its shape and dtype, 16 or more elements",
        "donated buffer",
        _donated_input,
        lambda: ask("torch.exp", ramp(16)),
        lambda: ask("torch.exp", ramp(15)),
    ),
    (
        "gaps-written",
        "what lies between the elements is 0",
        "inputs written to that have gaps",
        "write through a block: pytorch/pytorch#198102",
        _written_gaps,
        lambda: ask("torch.Tensor.add_", ramp(9)[::2], 1),
        lambda: ask("torch.Tensor.add_", ramp(9)[:4], 1),
    ),
    (
        "result-is-input",
        "the input itself",
        "results that are equal to an input",
        "copy removed as an identity",
        _same_memory,
        lambda: ask("torch.clone", f32(1, 2)),
        lambda: ask("torch.exp", f32(1, 2)),
    ),
    (
        "equal-results-are-one",
        "one tensor for both",
        "two results that are equal",
        "outputs deduplicated by value",
        _equal_results,
        lambda: ask("torch.aminmax", f32(2, 2)),
        lambda: ask("torch.aminmax", f32(2, 3)),
    ),
    (
        "results-in-static-memory",
        "overwritten by the next call",
        "a second call",
        "output buffers of a recorded graph",
        _static_results,
        lambda: ask("torch.exp", f32(1, 2)).again(f32(3, 4)),
        lambda: ask("torch.exp", f32(1, 2)),
    ),
)

BUGS = (*CACHES, *MEMORY)
