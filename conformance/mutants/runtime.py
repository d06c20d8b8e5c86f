"""A wrong runtime: layouts, sizes, results, memory, caches, and processes that die."""

from __future__ import annotations

import ctypes
import os
import random
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from torchstone.conformance.mutants.mutant import Patch, Rule, combined, mutants, patched

CALL = "torchstone.compiler.runtime.cpu.kernel:CpuKernel.__call__"
RUN = "torchstone.compiler.runtime.cpu.kernel:_run"


def _given(change: Callable[[Any], Any]) -> Patch:
    """Kernels are given something else for each tensor."""
    return patched(CALL, lambda right: lambda kernel, tensors: right(kernel, [change(t) for t in tensors]))


def _made(change: Callable[[Any], Any]) -> Patch:
    """Something else is made of each result of a kernel."""
    return patched(CALL, lambda right: lambda kernel, tensors: tuple(change(t) for t in right(kernel, tensors)))


# Layouts


def _from_the_start(tensor: Any) -> Any:
    return tensor.as_strided(tensor.shape, tensor.stride(), 0) if tensor.storage_offset() else tensor


def _raw(right: Rule) -> Rule:
    """Memory as it is, with no heed to the bits that say it is to be conjugated or negated."""

    def readable(tensor: Any, *name: str) -> Any:
        from torchstone.compiler._torch.tensors import flip_lazy_bits

        tensor = tensor.conj() if tensor.is_conj() else tensor
        return flip_lazy_bits(tensor, neg=tensor.is_neg())

    return readable


LAYOUT = mutants(
    "layout",
    (
        "strided-read-in-rows",
        "strides not looked at",
        "add sum mm",
        patched(
            "torchstone.compiler.runtime.cpu.kernel:CpuKernel._code",
            lambda right: lambda kernel, *, strided: right(kernel, strided=False),
        ),
    ),
    ("offset-ignored", "inputs read from the start of their memory", "add sum", _given(_from_the_start)),
    (
        "strides-reversed",
        "inputs that are not contiguous read with their strides turned round",
        "mul mm",
        _given(lambda t: t if t.is_contiguous() or len(set(t.shape)) > 1 else t.as_strided(t.shape, t.stride()[::-1])),
    ),
    (
        "lazy-bits-ignored",
        "lazy conjugation not carried out",
        "conj mH linalg.vecdot",
        patched("torchstone.compiler.runtime.cpu.kernel:readable", _raw),
    ),
    harmful="strided-read-in-rows",
)


# Sizes


class _Hints:
    """The sizes of the example that a program is being compiled with."""

    sizes: dict[str, int] = {}  # noqa: RUF012 - what the last compilation left

    @classmethod
    def remembered(cls, right: Rule) -> Rule:
        def to_contract(graph: Any, target: Any, hints: Any, **options: Any) -> Any:
            cls.sizes = dict(hints)
            return right(graph, target, hints, **options)

        return to_contract

    @classmethod
    def fixed(cls, size: Any) -> Any:
        from torchstone.compiler.ir.dims import evaluate, symbols

        known = not isinstance(size, int) and set(symbols(size)) <= set(cls.sizes)
        return evaluate(size, cls.sizes) if known else size


def _with_fixed_sizes(path: str, place: int) -> Patch:
    """A function of the compiler is given the example's size for its argument number ``place``."""

    def wrong(right: Rule) -> Rule:
        return lambda *given: right(*(_Hints.fixed(v) if at == place else v for at, v in enumerate(given)))

    return combined(patched("torchstone.compiler.driver:to_contract", _Hints.remembered), patched(path, wrong))


def _never_smaller(right: Rule) -> Rule:
    """Results are allocated at the first call, and used again where they are large enough."""

    def sized(kernel: Any, tensors: Any) -> Any:
        made = right(kernel, tensors)
        first = kernel.__dict__.setdefault("_mutant", made)
        if any(
            m.dim() != f.dim() or any(a > b for a, b in zip(m.shape, f.shape, strict=True))
            for m, f in zip(made, first, strict=True)
        ):
            kernel.__dict__["_mutant"] = made
            return made
        return [f.clone() for f in first]

    return sized


SIZES = mutants(
    "sizes baked in",
    (
        "mean-of-compiled-size",
        "divided by the number of elements of the example",
        "mean var",
        _with_fixed_sizes("torchstone.compiler.transforms.expansions.core.reduction:size_value", 1),
    ),
    (
        "index-of-compiled-size",
        "negative indices counted from the example's end",
        "take index_put __getitem__",
        _with_fixed_sizes("torchstone.compiler.transforms.expansions.indexing.index:bound", 2),
    ),
    (
        "results-never-smaller",
        "results have the size of the largest call so far",
        "add sum",
        patched("torchstone.compiler.runtime.cpu.kernel:CpuKernel._sized", _never_smaller),
    ),
)


# Types of results


def _narrow_index(tensor: Any) -> Any:
    import torch

    return tensor.to(torch.int32) if tensor.dtype == torch.int64 else tensor


def _widened(tensor: Any) -> Any:
    import torch

    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _first_only(right: Rule) -> Rule:
    return lambda captured, leaves: leaves[0]


METADATA = mutants(
    "metadata",
    ("result-squeezed", "dims of size 1 are lost", "sum amax unsqueeze", _made(lambda t: t.squeeze())),
    ("half-as-float32", "16-bit results are float32", "add", _made(_widened)),
    ("index-as-int32", "indices are int32", "argmax nonzero", _made(_narrow_index)),
    (
        "second-result-lost",
        "the first of several results",
        "max.reduction_with_dim topk",
        patched("torchstone.compiler.capture.program:Captured.unflatten", _first_only),
    ),
)


# Memory


def _one_buffer(right: Rule) -> Rule:
    """Every call of a kernel gives the same memory."""
    return lambda kernel: kernel.__dict__.setdefault("_mutant", right(kernel))


def _passed_through(right: Rule) -> Rule:
    """A result that equals an argument is that argument."""

    def call(kernel: Any, tensors: Any) -> Any:
        import torch

        def found(result: Any) -> Any:
            same = (
                t for t in tensors if t.dtype == result.dtype and t.shape == result.shape and torch.equal(t, result)
            )
            return next(same, result)

        return tuple(found(result) for result in right(kernel, tensors))

    return call


def _in_place(right: Rule) -> Rule:
    """The first argument is written over where the result fits it."""

    def call(kernel: Any, tensors: Any) -> Any:
        results = right(kernel, tensors)
        for tensor, result in zip(tensors[:1], results[:1], strict=True):
            if tensor.shape == result.shape and tensor.dtype == result.dtype and 0 not in tensor.stride():
                tensor.copy_(result)
        return results

    return call


def _not_written_back(right: Rule) -> Rule:
    def finish(captured: Any, outputs: Any, tensors: Any, sizes: Any) -> Any:
        copies = [t.clone() if at in captured.mutated else t for at, t in enumerate(tensors)]
        return right(captured, outputs, copies, sizes)

    return finish


def _but_the_last(right: Rule) -> Rule:
    """The last element of each result is what was there before."""

    def run(code: Any, function: Any, inputs: Any, outputs: Any) -> None:
        before = [t.reshape(-1)[-1:].clone() for t in outputs]
        right(code, function, inputs, outputs)
        for tensor, element in zip(outputs, before, strict=True):
            tensor.view(-1)[-1:] = element

    return run


def _in_a_race(right: Rule) -> Rule:
    """Now and then an element is its neighbour."""

    def run(code: Any, function: Any, inputs: Any, outputs: Any) -> None:
        right(code, function, inputs, outputs)
        for tensor in outputs:
            if tensor.numel() > 1 and random.random() < 0.2:
                flat = tensor.view(-1)
                flat[0] = flat[1].clone()

    return run


def _not_cleared(right: Rule) -> Rule:
    """What a kernel gave is added to what it gives the next time."""

    def run(code: Any, function: Any, inputs: Any, outputs: Any) -> None:
        right(code, function, inputs, outputs)
        kept = code.__dict__.setdefault("_mutant", {})
        for at, tensor in enumerate(outputs):
            old = kept.get(at)
            kept[at] = tensor.clone()
            if old is not None and old.shape == tensor.shape and tensor.dtype.is_floating_point:
                tensor.add_(old)

    return run


_LEAKED: list[Any] = []


def _never_freed(right: Rule) -> Rule:
    def run(code: Any, function: Any, inputs: Any, outputs: Any) -> None:
        import torch

        _LEAKED.append(torch.ones(1 << 22))
        right(code, function, inputs, outputs)

    return run


MEMORY = mutants(
    "memory",
    (
        "result-overwritten",
        "a result is overwritten by the next call",
        "add sum mm",
        patched("torchstone.compiler.runtime.cpu.kernel:CpuKernel._static", _one_buffer),
    ),
    ("result-is-argument", "a copy shares its argument's memory", "clone", patched(CALL, _passed_through)),
    ("argument-overwritten", "an argument is used for the result", "exp add", patched(CALL, _in_place)),
    (
        "write-back-lost",
        "the new value of an argument is not written back",
        "zero_ nn.functional.batch_norm",
        patched("torchstone.compiler.capture.program:Captured.finish", _not_written_back),
    ),
    ("last-not-written", "the last element is not written", "add exp", patched(RUN, _but_the_last)),
    ("race", "now and then an element is its neighbour", "add sum", patched(RUN, _in_a_race)),
    ("not-cleared", "what a call gave is added to the next", "add sum", patched(RUN, _not_cleared)),
    ("leak", "each call leaks 16 MB", "add", patched(RUN, _never_freed)),
)


# Passes and caches


def _by_name_alone(right: Rule) -> Rule:
    return lambda op: (op.name, *map(id, op.values)) if next(op.values, None) is not None else right(op)


def _without_numbers(right: Rule) -> Rule:
    def key_of(module: Any, *options: Any) -> Any:
        return re.sub(r"-?[0-9.]+(e[-+][0-9]+)? : f(32|64)", "", str(module)), *options

    return key_of


def _structured(op: str, wrong: Callable[[Any, Any], Any]) -> Patch:
    """Replace how a structured primitive becomes linalg."""

    def apply() -> AbstractContextManager[Any]:
        from torchstone.compiler.lowering.linalg import build

        return mock.patch.dict(build.STRUCTURED, {f"flat.{op}": wrong})

    return apply


PASSES = mutants(
    "passes and caches",
    (
        "shared-whatever-attributes",
        "ops shared that differ in attributes",
        "aminmax var_mean",
        patched("torchstone.compiler.transforms.cse:_key", _by_name_alone),
    ),
    (
        "cached-whatever-constants",
        "code used again for other constants",
        "add clamp pow",
        patched("torchstone.compiler.runtime.cpu.cache:key_of", _without_numbers),
    ),
    (
        "checks-dropped",
        "an index out of range is not refused",
        "index_select gather take",
        _structured("check", lambda e, op: []),
    ),
)


# Processes


def _dies(*_: Any) -> Any:
    os.abort()


def _ends(*_: Any) -> Any:
    os._exit(0)


def _hangs(*_: Any) -> Any:
    time.sleep(3600)


def _fails(e: Any, op: Any) -> Any:
    raise KeyError(op.name)


def _reads_nothing(right: Rule) -> Rule:
    def run(code: Any, function: Any, inputs: Any, outputs: Any) -> None:
        if any(t.dim() > 1 for t in inputs):
            ctypes.string_at(0)
        right(code, function, inputs, outputs)

    return run


class _Eager:
    """The program itself, in place of what it could not be compiled to; it says that it was."""

    library_calls = ()

    def __init__(self, fn: Any) -> None:
        self.fn = fn
        self.compiled_ops = tuple(call.target for call in fn.calls)

    def __call__(self, *tensors: Any) -> Any:
        return self.fn(*tensors)


def _swallowed(right: Rule) -> Rule:
    return lambda fn, *given, **options: _Eager(fn)


PROCESSES = mutants(
    "processes",
    ("aborts-compiling", "an assertion of the compiler ends the process", "sort", _structured("sort", _dies)),
    ("exits-compiling", "the process ends with code 0", "cumsum", _structured("scan", _ends)),
    ("faults-running", "compiled code reads address 0", "amin", patched(RUN, _reads_nothing)),
    ("hangs-compiling", "the compiler does not come to an end", "flip", _structured("reverse", _hangs)),
    ("fails-compiling", "the compiler raises KeyError", "cat", _structured("concat", _fails)),
    (
        "runs-eager",
        "what is not compiled is run by eager, and nothing is said",
        "add softmax",
        patched("torchstone.compiler.driver:compile", _swallowed),
    ),
    harmful="aborts-compiling exits-compiling faults-running hangs-compiling",
)

MUTANTS = (*LAYOUT, *SIZES, *METADATA, *MEMORY, *PASSES, *PROCESSES)
