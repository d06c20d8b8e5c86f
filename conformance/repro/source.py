"""Programs and tensors as Python source, bit for bit.

Tensors are written as literals when they are small, as compressed bytes otherwise.
"""

from __future__ import annotations

import base64
import itertools
import keyword
import zlib
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_bits_of, storage_key
from torchstone.conformance.escape import string_literal
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.program.call_targets import PROPERTIES, resolve
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves, map_leaves
from torchstone.conformance.program.program import Call, Program, is_name
from torchstone.conformance.program.tensor_storage import extent
from torchstone.conformance.tensor_bytes import packed_bytes

LITERAL_LIMIT = 64  # elements
WIDTH = 120  # of lines that could be broken


def function(name: str, parameters: Iterable[str], body: Iterable[str]) -> list[str]:
    """A definition, and the two lines after it."""
    return [f"def {name}({', '.join(parameters)}):", *(f"    {line}" for line in body), "", ""]


def body(program: Program) -> list[str]:
    """The statements of a program."""
    used = {leaf.name for leaf in leaves(program.outputs)}
    used.update(ref.name for call in program.calls for ref in call.refs())
    lines = []
    names = {*program.inputs, *(call.result for call in program.calls)}
    for call in program.calls:
        functions, call = _with_functions(call, names)
        lines += functions
        text = _call(call)
        if call.result == program.calls[-1].result and program.outputs == Ref(call.result):
            return [*lines, f"return {text}"]
        lines.append(f"{call.result} = {text}" if call.result in used else text)
    return [*lines, f"return {python_source(program.outputs)}"]


def _with_functions(call: Call, taken: set[str]) -> tuple[list[str], Call]:
    """The definitions of the functions that a call is given, and the call with their names."""
    lines: list[str] = []

    def named(leaf: Any) -> Any:
        if not isinstance(leaf, Program):
            return leaf
        name = next(new for n in itertools.count() if (new := f"{call.result}_body{n}") not in taken)
        taken.add(name)
        lines.extend([f"def {name}({', '.join(leaf.inputs)}):", *(f"    {line}" for line in body(leaf))])
        return Ref(name)

    return lines, call.map_arguments(named)


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
    elif "module" in getattr(resolve(call.target), "__dict__", ()) and "parameters" in call.kwargs:
        keywords = {key: value for key, value in call.kwargs.items() if key != "parameters"}
        args = [call.kwargs["parameters"], tuple(args), *([keywords] if keywords else [])]
        parts = ", ".join([call.target, *map(python_source, args)])
        return f"torch.func.functional_call({parts})"
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
        return tuple_of([python_source(item) for item in value])
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


def dynamic_shapes(dims: Iterable[Iterable[int]], kind: str = "AUTO") -> str:
    """What torch.export takes for dims of each input that may be of any size."""
    each = [", ".join(f"{axis}: torch.export.Dim.{kind}" for axis in dict.fromkeys(axes)) for axes in dims]
    return tuple_of(f"{{{axes}}}" if axes else "None" for axes in each)


def tuple_of(items: Any) -> str:
    items = list(items)
    return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"


def inputs(case: Case) -> list[str]:
    """Statements that build every input and return them. Inputs that share memory are views of one storage's tensor."""
    lines, built = _built(case)
    if len(case.inputs) == 1:
        return [*lines, f"return ({next(iter(built.values()))},)"]
    lines += [f"{name} = {text}" for name, text in built.items()]
    return [*lines, f"return {tuple_of(case.program.inputs)}"]


def constant_inputs(case: Case) -> list[str]:
    """A statement that makes ``inputs`` the tuple of the inputs; none where that takes more statements."""
    lines, built = _built(case)
    if lines:
        return []
    line = f"inputs = {tuple_of(built.values())}"
    return [line] if len(line) <= WIDTH else ["inputs = (", *(f"    {text}," for text in built.values()), ")"]


def builds_plainly(case: Case) -> bool:
    """Whether each input is built in row-major memory of its own, where PyTorch puts tensors."""
    plain = ("torch.tensor(", "torch.full(", "torch.empty(")
    lines, built = _built(case)
    return not lines and all(text.startswith(plain) and not text.endswith(".conj()") for text in built.values())


def _built(case: Case) -> tuple[list[str], dict[str, str]]:
    """Statements that build the storages which have to be there before, and an expression for each input."""
    lines: list[str] = []
    owners: dict[int, list[str]] = {}
    for name, tensor in case.inputs.items():
        owners.setdefault(storage_key(tensor), []).append(name)
    bases: dict[int, str] = {}
    built: dict[str, str] = {}
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
        built[name] = f"torch._neg_view({text})" if tensor.is_neg() else text
    return lines, built


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
    packed = base64.b64encode(zlib.compress(packed_bytes(tensor).numpy().tobytes(), 9)).decode()
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
    return built is not None and same_bits(built, tensor)
