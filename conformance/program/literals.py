"""The literal arguments a program may hold, and their JSON form.

None, bool, int, finite floats, str and lists are JSON's own. Everything else is an object with one key that names
its type, so a dict is never mistaken for a tagged value: ``{"tuple": [...]}``, ``{"dtype": "float32"}``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler.diagnostics import did_you_mean
from torchstone.conformance.errors import InputError

DTYPES: dict[str, torch.dtype] = {
    str(value).removeprefix("torch."): value for value in vars(torch).values() if isinstance(value, torch.dtype)
}
LAYOUTS: dict[str, torch.layout] = {"strided": torch.strided}
MEMORY_FORMATS: dict[str, torch.memory_format] = {
    str(value).removeprefix("torch."): value
    for value in (torch.contiguous_format, torch.channels_last, torch.channels_last_3d, torch.preserve_format)
}
MAX_DEPTH = 32


class ProgramError(InputError, ValueError):
    """A program, or a value in it, that cannot be expressed, read or resolved."""


class Nested(ABC):
    """What a call is given as a function: a program of its own, read by what ``TAGS`` has for ``program``."""

    @abstractmethod
    def to_data(self) -> dict[str, Any]:
        """As JSON values."""


@dataclass(frozen=True)
class Ref:
    """A tensor input, or the result of an earlier call (``path`` walks into it: indices, keys)."""

    name: str
    path: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return self.name + "".join(f"[{step!r}]" for step in self.path)


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` as ``float32``."""
    return str(dtype).removeprefix("torch.")


def parse_dtype(name: Any) -> torch.dtype:
    """``float32`` as ``torch.float32``. Raises ``ProgramError`` for any other name."""
    if not isinstance(name, str) or name not in DTYPES:
        lacking = f": PyTorch {torch.__version__} has none of this name"
        raise ProgramError(f"unknown dtype {name!r}{lacking}{did_you_mean(str(name), DTYPES)}")
    return DTYPES[name]


def leaf_paths(value: Any, path: tuple[int | str, ...] = ()) -> Iterator[tuple[tuple[int | str, ...], Any]]:
    """What nested lists, tuples and dicts hold, with the indices and keys that lead to it."""
    if isinstance(value, tuple | list):
        for index, item in enumerate(value):
            yield from leaf_paths(item, (*path, index))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaf_paths(item, (*path, key))
    else:
        yield path, value


def map_leaves(value: Any, leaf: Callable[[Any], Any]) -> Any:
    """Rebuild nested lists, tuples, dicts and slices with ``leaf`` applied to everything else."""
    if isinstance(value, tuple):
        return tuple([map_leaves(item, leaf) for item in value])
    if isinstance(value, list):
        return [map_leaves(item, leaf) for item in value]
    if isinstance(value, dict):
        return {key: map_leaves(item, leaf) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(map_leaves(value.start, leaf), map_leaves(value.stop, leaf), map_leaves(value.step, leaf))
    return leaf(value)


def leaves(value: Any) -> Iterator[Any]:
    """Everything in nested lists, tuples, dicts and slices that is none of these, in order."""
    if isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, slice):
        yield from leaves((value.start, value.stop, value.step))
    else:
        yield value


def encode_literal(value: Any, depth: int = 0) -> Any:
    """The JSON form of a literal. Raises ``ProgramError`` when there is none, naming the type."""
    if depth > MAX_DEPTH:
        raise ProgramError(f"a literal nested more than {MAX_DEPTH} deep")
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": str(value)}
    if type(value) is complex:
        return {"complex": [encode_literal(value.real), encode_literal(value.imag)]}
    if isinstance(value, Ref):
        return {"ref": [value.name, *value.path]}
    if isinstance(value, Nested):
        return {"program": value.to_data()}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.layout) and value in LAYOUTS.values():
        return {"layout": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"memory_format": str(value).removeprefix("torch.")}
    if isinstance(value, slice):
        return {"slice": [encode_literal(part, depth + 1) for part in (value.start, value.stop, value.step)]}
    if type(value) is list:
        return [encode_literal(item, depth + 1) for item in value]
    if type(value) is tuple:
        return {"tuple": [encode_literal(item, depth + 1) for item in value]}
    if type(value) is dict:
        return {
            "dict": [[encode_literal(key, depth + 1), encode_literal(item, depth + 1)] for key, item in value.items()]
        }
    raise ProgramError(f"a {type(value).__module__}.{type(value).__qualname__} cannot be written as a literal")


def _decode_ref(body: Any, depth: int) -> Ref:
    if not isinstance(body, list) or not body or not isinstance(body[0], str):
        raise ProgramError(f"malformed reference {body!r}")
    if not all(type(step) in (int, str) for step in body[1:]):
        raise ProgramError(f"malformed reference {body!r}")
    return Ref(body[0], tuple(body[1:]))


def _decode_float(body: Any, depth: int) -> float:
    if body not in ("nan", "inf", "-inf"):
        raise ProgramError(f"malformed float {body!r}")
    return float(body)


def _decode_complex(body: Any, depth: int) -> complex:
    parts = [decode_literal(part, depth + 1) for part in _sequence(body, 2)]
    if not all(type(part) in (int, float) for part in parts):
        raise ProgramError(f"malformed complex {body!r}")
    return complex(*parts)


def _decode_dict(body: Any, depth: int) -> dict[Any, Any]:
    pairs = [_sequence(pair, 2) for pair in _sequence(body)]
    keys = [decode_literal(key, depth + 1) for key, _ in pairs]
    if not all(type(key) in (str, int, bool, float) for key in keys):
        raise ProgramError("a dict literal with a key that is neither a string nor a number")
    return dict(zip(keys, [decode_literal(item, depth + 1) for _, item in pairs], strict=True))


def _decode_device(body: Any, depth: int) -> torch.device:
    try:
        return torch.device(body if isinstance(body, str) else "")
    except RuntimeError as error:
        raise ProgramError(f"unknown device {body!r}") from error


def _named(table: dict[str, Any], what: str) -> Callable[[Any, int], Any]:
    def decode_name(body: Any, depth: int) -> Any:
        if not isinstance(body, str) or body not in table:
            raise ProgramError(f"unknown {what} {body!r}{did_you_mean(str(body), table)}")
        return table[body]

    return decode_name


def _sequence(body: Any, length: int | None = None) -> list[Any]:
    if not isinstance(body, list) or (length is not None and len(body) != length):
        raise ProgramError(f"expected a list{'' if length is None else f' of {length}'}, got {str(body)[:80]}")
    return body


TAGS: dict[str, Callable[[Any, int], Any]] = {
    "ref": _decode_ref,
    "float": _decode_float,
    "complex": _decode_complex,
    "ellipsis": lambda body, depth: ...,
    "dtype": lambda body, depth: parse_dtype(body),
    "device": _decode_device,
    "layout": _named(LAYOUTS, "layout"),
    "memory_format": _named(MEMORY_FORMATS, "memory format"),
    "slice": lambda body, depth: slice(*[decode_literal(part, depth + 1) for part in _sequence(body, 3)]),
    "tuple": lambda body, depth: tuple([decode_literal(item, depth + 1) for item in _sequence(body)]),
    "dict": _decode_dict,
}


def decode_literal(value: Any, depth: int = 0) -> Any:
    """The literal that ``encode`` wrote. Raises ``ProgramError`` on anything it would not have written."""
    if depth > MAX_DEPTH:
        raise ProgramError(f"a literal nested more than {MAX_DEPTH} deep")
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, list):
        return [decode_literal(item, depth + 1) for item in value]
    if isinstance(value, dict) and len(value) == 1:
        tag, body = next(iter(value.items()))
        if tag in TAGS:
            return TAGS[tag](body, depth)
        raise ProgramError(f"unknown literal tag {tag!r}{did_you_mean(tag, TAGS)}")
    raise ProgramError(f"not a literal: {str(value)[:80]}")
