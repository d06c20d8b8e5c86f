"""The arguments of an op: of an operator by its schema, of a Python function or a module by its signature."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

from torchstone.conformance.custom.registration import CustomOp

MISSING = inspect.Parameter.empty


class Kind(StrEnum):
    """What an argument is; ``OTHER`` is what nobody needs to give: a device, a generator."""

    TENSOR = "tensor"
    TENSORS = "tensors"
    INT = "int"
    INTS = "ints"
    FLOAT = "float"
    FLOATS = "floats"
    BOOL = "bool"
    BOOLS = "bools"
    WORD = "word"
    DTYPE = "dtype"
    OTHER = "other"


_KINDS = {
    "Tensor": Kind.TENSOR, "List[Tensor]": Kind.TENSORS, "List[Optional[Tensor]]": Kind.TENSORS,
    "int": Kind.INT, "SymInt": Kind.INT, "List[int]": Kind.INTS, "List[SymInt]": Kind.INTS,
    "float": Kind.FLOAT, "number": Kind.FLOAT, "Scalar": Kind.FLOAT, "List[float]": Kind.FLOATS,
    "List[number]": Kind.FLOATS, "bool": Kind.BOOL, "List[bool]": Kind.BOOLS, "str": Kind.WORD,
    "ScalarType": Kind.DTYPE, "dtype": Kind.DTYPE,
}  # fmt: skip
_OPTIONAL = re.compile(r"Optional\[(.*)\]|(.*) \| None")


@dataclass(frozen=True)
class Argument:
    """An argument. ``default`` is ``MISSING`` where there is none; ``length`` that of a list of fixed length."""

    name: str
    kind: Kind
    optional: bool
    default: Any
    keyword: bool
    length: int | None = None

    @property
    def required(self) -> bool:
        return self.default is MISSING


def arguments_of(op: CustomOp) -> list[Argument]:
    """The arguments of an op, in order."""
    if op.schema is not None:
        return [_of_schema(argument) for argument in op.schema.arguments]
    module = op.function.__dict__.get("module")
    signature = inspect.signature(module.forward if module is not None else op.function)
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [_of_signature(p) for p in signature.parameters.values() if p.kind not in variable]


def _of_schema(argument: Any) -> Argument:
    text = str(getattr(argument, "real_type", argument.type))
    optional = _OPTIONAL.fullmatch(text)
    kind = _KINDS.get(optional[1] or optional[2] if optional else text, Kind.OTHER)
    default = argument.default_value if argument.has_default_value() else MISSING
    return Argument(argument.name, kind, bool(optional), default, argument.kwarg_only, argument.N)


def _of_signature(parameter: inspect.Parameter) -> Argument:
    annotation = parameter.annotation
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    if annotation is not MISSING and not isinstance(annotation, type | str):
        text = str(annotation)
    text = text.replace("torch.", "").replace("typing.", "").replace("list[", "List[")
    optional = _OPTIONAL.fullmatch(text)
    kind = _KINDS.get(optional[1] or optional[2] if optional else text)
    if kind is None:
        kind = _kind_of(parameter.default)
    keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return Argument(parameter.name, kind, bool(optional), parameter.default, keyword)


def _kind_of(default: Any) -> Kind:
    """What a default says of an argument without a type. One without either is a tensor."""
    if default is MISSING:
        return Kind.TENSOR
    kinds = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, str: Kind.WORD, torch.dtype: Kind.DTYPE}
    return kinds.get(type(default), Kind.OTHER)


def split(arguments: Sequence[Argument], given: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments by name as a call has them: by position as far as none is left out."""
    args: list[Any] = []
    rest = dict(given)
    for argument in arguments:
        if argument.keyword or argument.name not in rest:
            break
        args.append(rest.pop(argument.name))
    return tuple(args), rest
