"""What an op takes, as data: calls, each argument of them written so that a person can read and change it.

A domain is a TOML file. ``calls`` are the calls that are asked. A tensor is written by its dtype and sizes, ``*`` for
the dtype that is asked for: ``"*[3, 4]"``, ``"int64[5] below 3"``, ``"bool[]"``, ``"*[4] above 0"``. Other arguments
are TOML's own numbers, words and lists, or one of ``"none"``, ``"dtype float64"``. An argument that is left out has its
default.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.literals import DTYPES, dtype_name

ANY = "*"
"""In place of a dtype: the one that is asked for."""
NONE = "none"
"""In place of an argument: None."""
_DTYPE = "dtype "
_WORD = "word "
_TENSOR = re.compile(r"(\*|\w+)\[([\d, ]*)\](?: below (\d+))?( above 0)?")


@dataclass(frozen=True)
class TensorSpec:
    """A tensor to be drawn: ``below`` bounds whole numbers, which are places then; ``positive`` leaves out the rest."""

    dtype: str
    shape: tuple[int, ...]
    below: int | None = None
    positive: bool = False

    def __str__(self) -> str:
        bound = f" below {self.below}" if self.below is not None else ""
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]{bound}{' above 0' if self.positive else ''}"

    @classmethod
    def parse(cls, text: str) -> TensorSpec | None:
        """The spec that a text is, None where it is none."""
        found = _TENSOR.fullmatch(text.strip())
        if found is None or (found[1] != ANY and found[1] not in DTYPES):
            return None
        shape = tuple(int(size) for size in found[2].split(",") if size.strip())
        return cls(found[1], shape, int(found[3]) if found[3] else None, bool(found[4]))


Call = Mapping[str, Any]
"""The arguments of a call by name: a ``TensorSpec``, a list of them, or a literal."""


@dataclass(frozen=True)
class Domain:
    """What is known of the arguments of an op. ``schema`` is what it was learned from."""

    op: str
    schema: str
    calls: tuple[Call, ...]

    def to_toml(self) -> str:
        """The text of the file."""
        lines = [
            f"# What {self.op} takes, learned from its schema and from what eager accepts. These calls are asked:",
            "# change them, add to them. A tensor is its dtype and its sizes; * is the dtype asked for, below 3",
            "# are whole numbers from 0 to 2, above 0 are no others. Without this file the op is learned anew.",
            f"op = {json.dumps(self.op)}",
            f"schema = {json.dumps(self.schema)}",
            "calls = [",
        ]
        lines += [
            f"    {{ {', '.join(f'{name} = {_written(value)}' for name, value in c.items())} }}," for c in self.calls
        ]
        return "\n".join([*lines, "]"]) + "\n"

    @classmethod
    def from_toml(cls, text: str, where: str) -> Domain:
        """Read what ``to_toml`` wrote and a person may have changed. Raises ``InputError`` naming ``where``."""
        try:
            data = tomllib.loads(text)
            calls = tuple({name: _read(value) for name, value in call.items()} for call in data["calls"])
            return cls(str(data["op"]), str(data["schema"]), calls)
        except (tomllib.TOMLDecodeError, KeyError, TypeError, AttributeError, ValueError) as error:
            raise InputError(f"{where}: no domain of an op: {type(error).__name__}: {error}") from error


def _written(value: Any) -> str:
    if isinstance(value, TensorSpec):
        return json.dumps(str(value))
    if value is None:
        return json.dumps(NONE)
    if isinstance(value, torch.dtype):
        return json.dumps(f"{_DTYPE}{dtype_name(value)}")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_written, value)) + "]"
    if isinstance(value, str):
        ambiguous = value == NONE or value.startswith((_DTYPE, _WORD)) or TensorSpec.parse(value) is not None
        return json.dumps(f"{_WORD}{value}" if ambiguous else value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    return json.dumps(value)


def _read(value: Any) -> Any:
    if isinstance(value, list):
        return [_read(item) for item in value]
    if not isinstance(value, str):
        return value
    if value == NONE:
        return None
    if value.startswith(_WORD):
        return value.removeprefix(_WORD)
    if value.startswith(_DTYPE):
        return DTYPES[value.removeprefix(_DTYPE)]
    return TensorSpec.parse(value) or value


def specs(value: Any) -> Iterator[TensorSpec]:
    """The tensors in an argument."""
    if isinstance(value, TensorSpec):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from specs(item)


def filled(call: Call, dtype: torch.dtype, profile: int) -> dict[str, Any]:
    """The arguments of a call with tensors drawn from PyTorch's generator, of the numbers that ``profile`` says."""
    return {name: _filled(value, dtype, profile) for name, value in call.items()}


def _filled(value: Any, dtype: torch.dtype, profile: int) -> Any:
    if isinstance(value, TensorSpec):
        return draw(value, DTYPES[value.dtype] if value.dtype != ANY else dtype, profile)
    if isinstance(value, list | tuple):
        return [_filled(item, dtype, profile) for item in value]
    return value


MODERATE, WIDE, QUARTERS = range(3)
"""Which numbers: around 0; of all magnitudes and the ends of the integers; multiples of a quarter, which tie."""
PROFILES = (MODERATE, WIDE, QUARTERS)
MOST = 1e4


def draw(spec: TensorSpec, dtype: torch.dtype, profile: int) -> Tensor:
    """A contiguous tensor of a spec in a dtype."""
    shape = list(spec.shape)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape).bool()
    if spec.below is not None:
        return torch.randint(0, max(spec.below, 1), shape).to(dtype)
    if dtype.is_complex:
        parts = [draw(TensorSpec(ANY, spec.shape, None, spec.positive), torch.float64, profile) for _ in range(2)]
        most = math.sqrt(torch.finfo(dtype).max)
        return torch.complex(*(part.clamp(-most, most) for part in parts)).to(dtype)
    if not dtype.is_floating_point:
        return _whole(shape, dtype, profile, spec.positive)
    numbers = _numbers(shape, profile, math.sqrt(torch.finfo(dtype).max))
    return (numbers.abs() + torch.finfo(dtype).eps if spec.positive else numbers).to(dtype)


def _numbers(shape: Sequence[int], profile: int, most: float) -> Tensor:
    if profile == MODERATE:
        return torch.randn(shape, dtype=torch.float64) * 3
    if profile == QUARTERS:
        return torch.randint(-16, 17, shape).to(torch.float64) / 4
    low, high = math.log(1e-3), math.log(min(MOST, most))
    sizes = torch.exp(low + (high - low) * torch.rand(shape, dtype=torch.float64))
    return torch.where(torch.rand(shape) < 0.5, -sizes, sizes)


def _whole(shape: Sequence[int], dtype: torch.dtype, profile: int, positive: bool) -> Tensor:
    info = torch.iinfo(dtype)
    least = 1 if positive else max(info.min, -9)
    if profile != WIDE:
        return torch.randint(least, 10, shape).to(dtype)
    ends = [
        info.max,
        info.max - 1,
        info.max // 2 + 1,
        1,
        7,
        100,
        *([] if positive else [0, info.min, max(info.min, -100)]),
    ]
    if dtype == torch.uint64:  # of which PyTorch makes no tensor of numbers beyond int64
        ends = [end for end in ends if end <= torch.iinfo(torch.int64).max]
    return torch.tensor(ends)[torch.randint(0, len(ends), shape)].to(dtype)
