"""A case as a standalone Python script: imports torch and, for a backend, what runs it; nothing of the harness's data.

Inputs are written as literals when they are small, as compressed bytes otherwise; either way the script's tensors are
the case's bit for bit, strides, offsets and aliasing included.
"""

from __future__ import annotations

import base64
import itertools
import keyword
import re
import textwrap
import zlib
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_bits_of, storage_key
from torchstone.conformance.escape import docstring, string_literal, visible
from torchstone.conformance.execution.verdict import Outcome, Verdict
from torchstone.conformance.oracle.tolerances import TABLE, tolerance
from torchstone.conformance.program.call_targets import PROPERTIES
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves, map_leaves
from torchstone.conformance.program.program import Call, is_name
from torchstone.conformance.program.tensor_storage import extent
from torchstone.conformance.repro import standalone

LITERAL_LIMIT = 64  # elements
MESSAGE_LINES = 12
STORAGE = re.compile("s[0-9]+")  # what inputs() calls a storage that inputs share
RESERVED = frozenset(["torch", "base64", "zlib", "bytearray", "float", "complex", "slice", "getattr"])
"""What the bodies of ``program`` and ``inputs`` mean by these names is Python's, or an import of the script's."""
BUILT_IN = ("linalg", "tosa", "tensorrt")


def render_script(case: Case, backend: str | None = None, verdict: Verdict | None = None) -> str:
    """The script's text. With a backend it asserts, to the oracle's ULPs, that both runs agree.

    ``verdict`` is the case's verdict there. The script's docstring has it, and a script for a compiler that dies
    survives it.
    """
    case = _renamed(case)
    built = _inputs(case)
    packed = any("b64decode" in line for line in built)
    known = backend in (*BUILT_IN, "eager", "inductor")
    path = None if known or backend is None else standalone.compiler_path(backend, verdict)
    lines = [*_title(case, backend, verdict), "", *_imports(packed, backend, verdict, path), "", ""]
    lines += [f"def program({', '.join(case.program.inputs)}):", *(f"    {line}" for line in _body(case)), "", ""]
    lines += ["def inputs():", *(f"    {line}" for line in [*built, f"return {_tuple(case.program.inputs)}"]), "", ""]
    if path is not None:
        lines += standalone.definitions(path, case)
    lines += standalone.subprocess_guard() if standalone.kills_process(verdict) else []
    lines.append("torch.manual_seed(20)")
    if path is None:
        lines += _main(case, backend, verdict)
    else:
        lines += standalone.comparison(path, str(backend), case, verdict, _closeness(case))
    return "\n".join(lines) + "\n"


def _renamed(case: Case) -> Case:
    """The case with other names for what would hide a name of the script's own."""
    program = case.program
    taken = {*program.inputs, *(call.result for call in program.calls)}
    names: dict[str, str] = {}
    for name in [*program.inputs, *(call.result for call in program.calls)]:
        if name in RESERVED or (name in program.inputs and STORAGE.fullmatch(name)):
            names[name] = next(new for new in (f"{name}{'_' * n}" for n in itertools.count(1)) if new not in taken)
            taken.add(names[name])
    if not names:
        return case

    inputs = {names.get(name, name): tensor for name, tensor in case.inputs.items()}
    return case.replace(program=program.rename(names), inputs=inputs)


def _title(case: Case, backend: str | None, verdict: Verdict | None) -> list[str]:
    head = case.id + (f" on {backend}" if backend else "")
    if verdict is None or verdict.outcome is Outcome.PASS:
        return docstring([head])
    summary = f"{verdict.outcome} at {verdict.stage}: {verdict.message}"
    lines = [line.rstrip() for part in summary.splitlines() for line in textwrap.wrap(visible(part), 118) or [""]]
    return docstring([head, "", *lines[:MESSAGE_LINES]])


def _imports(packed: bool, backend: str | None, verdict: Verdict | None, path: Any) -> list[str]:
    lines = ["import base64"] if packed else []
    lines += ["import ctypes"] if standalone.calls_differ(verdict) and backend is not None else []
    lines += ["import subprocess", "import sys"] if standalone.kills_process(verdict) else []
    lines += ["import zlib"] if packed else []
    lines += ["from collections.abc import Callable"] if path is not None else []
    lines += ["", "import torch"] if lines else ["import torch"]
    if path is not None:
        lines.append("from torch.utils._pytree import tree_leaves")
    elif backend in BUILT_IN:
        lines += ["", "import torchstone"]
    elif backend not in (None, "eager", "inductor"):
        lines += ["", "from torchstone.conformance.backends import load"]
    return lines


def _main(case: Case, backend: str | None, verdict: Verdict | None) -> list[str]:
    lines = ["expected_inputs = inputs()", "expected = program(*expected_inputs)"]
    lines.append('print("eager:", expected)')
    if backend is None:
        return lines
    if backend == "eager":
        compiled = "program"
    elif backend == "inductor":
        compiled = "torch.compile(program)"
    elif backend in BUILT_IN:
        compiled = f"torchstone.compile(program, inputs(), target={python_source(backend)})"
    else:
        compiled = f"load({python_source(backend)}).compile(program, inputs())"
    rtol, atol = _closeness(case)
    compared = "(actual, actual_inputs), (expected, expected_inputs)"
    return [
        *lines,
        "",
        f"compiled = {compiled}",
        *standalone.repeat_calls(
            [
                "torch.manual_seed(20)",
                "actual_inputs = inputs()",
                "actual = compiled(*actual_inputs)",
                f"print({python_source(f'{backend}:')}, actual)",
                f"torch.testing.assert_close({compared}, rtol={rtol!r}, atol={atol!r}, equal_nan=True)",
            ],
            verdict,
        ),
    ]


def _closeness(case: Case) -> tuple[float, float]:
    """The oracle's ULPs as a relative tolerance, for the least precise floating dtype among the inputs."""
    floating = [t.dtype for t in case.args if t.dtype.is_floating_point or t.dtype.is_complex]
    coarsest = max(floating, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)
    row = tolerance(coarsest, [call.target for call in case.program.calls]) if floating else TABLE[torch.float32]
    return row.ulps * torch.finfo(coarsest).eps, row.tiny


def _body(case: Case) -> list[str]:
    used = {leaf.name for leaf in leaves(case.program.outputs)}
    used.update(ref.name for call in case.program.calls for ref in call.refs())
    lines = []
    for call in case.program.calls:
        text = _call(call)
        lines.append(f"{call.result} = {text}" if call.result in used else text)
    return [*lines, f"return {python_source(case.program.outputs)}"]


def _call(call: Call) -> str:
    name = call.target.rpartition(".")[2]
    args = list(call.args)
    if call.target.startswith("torch.Tensor.") and args and isinstance(args[0], Ref):
        this = python_source(args[0])
        if name in PROPERTIES:
            return f"{this}.{name}"
        if name == "__getitem__" and len(args) == 2:
            return f"{this}[{python_source(args[1])}]"
        function = _attribute(this, name)
        args = args[1:]
    else:
        function = _attribute(*call.target.split("."))
    parts = [python_source(arg) for arg in args]
    plain = {key: value for key, value in call.kwargs.items() if is_name(key)}
    parts += [f"{key}={python_source(value)}" for key, value in plain.items()]
    other = {key: value for key, value in call.kwargs.items() if key not in plain}
    if other:
        parts.append(f"**{python_source(other)}")
    return f"{function}({', '.join(parts)})"


def _attribute(first: str, *parts: str) -> str:
    """A dotted name as Python source: ``torch.ops.aten.random_.from`` has a part that Python keeps for itself."""
    for part in parts:
        first = f"getattr({first}, {python_source(part)})" if keyword.iskeyword(part) else f"{first}.{part}"
    return first


def python_source(value: Any) -> str:
    """A literal or reference as Python source."""
    if isinstance(value, Ref):
        return value.name + "".join(f"[{python_source(step)}]" for step in value.path)
    if isinstance(value, tuple):
        return _tuple([python_source(item) for item in value])
    if isinstance(value, list):
        return "[" + ", ".join(python_source(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{python_source(key)}: {python_source(item)}" for key, item in value.items()) + "}"
    if isinstance(value, slice):
        return f"slice({python_source(value.start)}, {python_source(value.stop)}, {python_source(value.step)})"
    if value is Ellipsis:
        return "..."
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    if isinstance(value, complex):
        return f"complex({python_source(value.real)}, {python_source(value.imag)})"
    if isinstance(value, str):
        return string_literal('"' + repr(value)[1:-1] + '"' if "'" not in value and '"' not in value else repr(value))
    return repr(value)


def _tuple(items: Any) -> str:
    items = list(items)
    return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"


def _inputs(case: Case) -> list[str]:
    """Statements that build every input. Inputs that share memory are views of one storage's tensor."""
    lines: list[str] = []
    owners: dict[int, list[str]] = {}
    for name, tensor in case.inputs.items():
        owners.setdefault(storage_key(tensor), []).append(name)
    bases: dict[int, str] = {}
    for name, tensor in case.inputs.items():
        plain = _unlazy(tensor)
        key = storage_key(tensor)
        if len(owners[key]) == 1 and _dense(plain):
            text = _values(plain)
        else:
            if key not in bases:
                bases[key] = f"s{len(bases)}"
                lines.append(f"{bases[key]} = {_values(_storage(plain, case, owners[key]))}")
            typed = "" if _storage(plain, case, owners[key]).dtype == plain.dtype else f".view({plain.dtype})"
            geometry = f"{tuple(plain.shape)}, {tuple(plain.stride())}, {plain.storage_offset()}"
            text = f"{bases[key]}{typed}.as_strided({geometry})"
        text += ".conj()" if tensor.is_conj() else ""
        lines.append(f"{name} = torch._neg_view({text})" if tensor.is_neg() else f"{name} = {text}")
    return lines


def _unlazy(tensor: Tensor) -> Tensor:
    return flip_bits_of(tensor.detach(), tensor)


def _dense(tensor: Tensor) -> bool:
    """Whether a tensor freshly built with this shape has the same strides and offset."""
    return tensor.storage_offset() == 0 and tensor.stride() == torch.empty(tensor.shape, device="meta").stride()


def _storage(tensor: Tensor, case: Case, owners: list[str]) -> Tensor:
    """The elements of a storage that its views can reach, one row; bytes when the views disagree on the dtype."""
    views = [_unlazy(case.inputs[name]) for name in owners]
    agree = all(view.dtype == tensor.dtype for view in views)
    dtype = tensor.dtype if agree else torch.uint8
    ends = [extent(view.shape, view.stride(), int(view.storage_offset())) * view.element_size() for view in views]
    length = min(max(ends), tensor.untyped_storage().nbytes()) // dtype.itemsize
    return torch.empty(0, dtype=dtype).set_(tensor.untyped_storage(), 0, (length,), (1,))


def _values(tensor: Tensor) -> str:
    """An expression for a contiguous tensor with exactly these bits."""
    dtype, shape = str(tensor.dtype), tuple(tensor.shape)
    if not tensor.numel():
        return f"torch.empty({shape}, dtype={dtype})"
    if tensor.numel() <= LITERAL_LIMIT:
        for numbers in (_shortest(tensor), map_leaves(tensor.tolist(), _as_printed)):
            if _same_bits(_try_literal(numbers, tensor.dtype), tensor):
                return f"torch.tensor({python_source(numbers)}, dtype={dtype})"
    first = _as_printed(tensor.reshape(-1)[0].item())
    if _same_bits(_try_full(shape, first, tensor.dtype), tensor):
        return f"torch.full({shape}, {python_source(first)}, dtype={dtype})"
    packed = base64.b64encode(zlib.compress(_bits(tensor).numpy().tobytes(), 9)).decode()
    return f'torch.frombuffer(bytearray(zlib.decompress(base64.b64decode("{packed}"))), dtype={dtype}).reshape({shape})'


def _shortest(tensor: Tensor) -> Any:
    """The numbers with the fewest digits that tell float32 apart, where that is what they are."""
    if tensor.dtype is not torch.float32:
        return map_leaves(tensor.tolist(), _as_printed)
    digits = [float(str(number)) for number in tensor.reshape(-1).numpy()]
    return torch.tensor(digits, dtype=torch.float64).reshape(tensor.shape).tolist()


def _as_printed(number: Any) -> Any:
    """The number that its source stands for: a NaN without its payload."""
    if isinstance(number, complex):
        return complex(_as_printed(number.real), _as_printed(number.imag))
    return float("nan") if number != number else number


def _try_literal(numbers: Any, dtype: torch.dtype) -> Tensor | None:
    try:
        return torch.tensor(numbers, dtype=dtype)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        return None


def _try_full(shape: tuple[int, ...], value: Any, dtype: torch.dtype) -> Tensor | None:
    try:
        return torch.full(shape, value, dtype=dtype)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        return None


def _same_bits(built: Tensor | None, tensor: Tensor) -> bool:
    if built is None:
        return False
    return torch.equal(_bits(built), _bits(tensor))


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
