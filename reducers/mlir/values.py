"""Whether a module still computes, after a pipeline, what it computed before."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from torchstone.compiler import mlir
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.runtime.cpu.allocating_kernel import run_returning
from torchstone.conformance.errors import InputError
from torchstone.reducers.mlir import edits
from torchstone.reducers.mlir.trial import RUN_AFTER, RUN_BEFORE, Outcome, in_child, try_pipeline

if TYPE_CHECKING:
    from torchstone.reducers.mlir.shrink import Question, Subject

DYNAMIC = 3
"""The length that a dynamic dim of an argument gets."""

_ARGUMENT = re.compile(r"(?:tensor|memref)<((?:(?:\?|\d+)x)*)(\w+)>|(\w+)")


def computing(entry: str, timeout: float, tolerance: float) -> Question:
    """Ask whether the module, once through the pipeline, still computes what it computed before.

    Both are run on this project's CPU runtime, so that the pipeline has to leave tensors or linalg on them. Arguments
    are numbers drawn from a fixed seed. Integers and booleans have to be equal, NaN is NaN, and other numbers may
    differ by ``tolerance`` times the largest number of the result.
    """
    torch.set_num_threads(1)  # a process with threads cannot fork

    def ask(subject: Subject) -> Outcome:
        through = try_pipeline(subject.module, subject.pipeline, timeout, text=True)
        if through.kind != "ok":
            return through
        return in_child(lambda tell: _compared(subject.module, through.module, entry, tolerance, tell), timeout)

    return ask


def _compared(before: str, after: str, entry: str, tolerance: float, tell: Callable[..., None]) -> None:
    found = []
    for what, text in ((RUN_BEFORE, before), (RUN_AFTER, after)):
        tell(kind="at", at=what)
        module = edits.parsed(text)
        try:
            found.append(run_returning(text, arguments(module, entry), entry=entry))
        except (TorchstoneError, InputError) as error:
            tell(kind="error", detail=str(error).splitlines()[0])
            return
    difference = differ(found[0], found[1], tolerance)
    tell(kind="wrong" if difference else "ok", at="values", detail=difference)


def arguments(module: Any, entry: str) -> list[Any]:
    """Return an argument for each of a function's parameters: tensors, and numbers for scalars; small and repeatable.

    Raises InputError for a function that is not there, or takes what torch has no dtype for.
    """
    ir = mlir.bindings().ir
    functions = {
        ir.StringAttr(op.attributes["sym_name"]).value: op for op in module.body if "sym_name" in op.attributes
    }
    if entry not in functions:
        raise InputError(f"the module has no function @{entry}, but {', '.join(sorted(functions)) or 'none'}: --entry")
    kinds = ir.FunctionType(ir.TypeAttr(functions[entry].attributes["function_type"]).value).inputs
    generator = torch.Generator().manual_seed(0)
    return [_argument(str(kind), generator) for kind in kinds]


def _argument(kind: str, generator: Any) -> Any:
    dtypes = {
        "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64,
        "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i1": torch.bool,
    }  # fmt: skip
    found = _ARGUMENT.fullmatch(kind)
    scalar = found and found[3]
    dtype = torch.int64 if scalar == "index" else dtypes.get((found[2] or found[3]) if found else "")
    if found is None or dtype is None:
        raise InputError(f"an argument of type {kind} cannot be given a value; use --test with a command of your own")
    if scalar:
        return 1 if not dtype.is_floating_point else 0.75
    shape = [DYNAMIC if length == "?" else int(length) for length in found[1].split("x") if length]
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.randint(0, 2 if dtype == torch.bool else 5, shape, generator=generator).to(dtype)


def differ(expected: Any, got: Any, tolerance: float) -> str:
    """Say where two lists of results differ; nothing where they do not."""
    if len(expected) != len(got):
        return f"{len(expected)} results before, {len(got)} after"
    for at, (a, b) in enumerate(zip(expected, got, strict=True)):
        if reason := next(_differences(a, b, tolerance), ""):
            return f"result {at}: {reason}"
    return ""


def _differences(a: Any, b: Any, tolerance: float) -> Iterator[str]:
    a, b = torch.as_tensor(a), torch.as_tensor(b)
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        yield f"{a.dtype} {list(a.shape)} before, {b.dtype} {list(b.shape)} after"
        return
    if not a.numel():
        return
    if not a.dtype.is_floating_point and not a.dtype.is_complex:
        wrong = a != b
    else:
        a, b = a.to(torch.complex128), b.to(torch.complex128)
        largest = float(torch.where(a.isfinite(), a, 0).abs().max())
        near = (a - b).abs() <= tolerance * largest
        wrong = ~(near | (a == b) | (a.isnan() & b.isnan()))
    if wrong.any():
        at = tuple(int(i) for i in wrong.nonzero()[0])
        yield f"{_number(a[at].item())} before, {_number(b[at].item())} after, at {list(at)}"


def _number(value: Any) -> str:
    if isinstance(value, complex) and (value.imag == 0 or math.isnan(value.real)):
        return repr(value.real)
    return repr(value)
