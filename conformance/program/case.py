"""A case: a program, its inputs, and where it came from. Every source yields cases, every consumer takes them.

On disk a case is one safetensors file: each distinct storage as raw bytes, and in the header's metadata the JSON of the
program and of how each input views its storage. Layout, aliasing, lazy conjugation and every bit survive the trip.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from torchstone.conformance.custom import registration
from torchstone.conformance.errors import InputError
from torchstone.conformance.escape import one_line, visible
from torchstone.conformance.program.literals import ProgramError
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import LayoutError, copy_tensors, pack, unpack

SCHEMA = 1
_KEY = "torchstone"
MAX_LABEL = 500
_LABELS = ("source", "op", "dtype", "variant")


class CaseError(InputError, ValueError):
    """A case file that cannot be read, or an input that a case cannot hold."""


@dataclass(frozen=True, eq=False)
class Case:
    """A program with the inputs to run it on.

    ``inputs`` maps each of ``program.inputs`` to a strided CPU tensor; nobody may write to them (take ``fresh_args``).
    ``id`` names the case for ever: the same source, op, dtype, index and variant mean the same bytes.
    """

    program: Program
    inputs: dict[str, Tensor]
    source: str
    op: str
    dtype: str
    variant: str = "default"
    index: int = 0
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if tuple(self.inputs) != self.program.inputs:
            raise CaseError(f"the program takes ({', '.join(self.program.inputs)}), given ({', '.join(self.inputs)})")

    @property
    def id(self) -> str:
        """``source:op:dtype:index``, and ``:variant`` when it is not the default one."""
        tail = "" if self.variant == "default" else f":{self.variant}"
        return f"{self.source}:{self.op}:{self.dtype}:{self.index}{tail}"

    @property
    def args(self) -> tuple[Tensor, ...]:
        """The inputs in the program's order. Shared: not to be written to."""
        return tuple(self.inputs.values())

    def fresh_args(self) -> tuple[Tensor, ...]:
        """Copies to run on: same values, strides, offsets, and the same aliasing among them."""
        return copy_tensors(self.args)

    def replace(self, **changes: Any) -> Case:
        """The case with some fields changed."""
        return dataclasses.replace(self, **changes)

    def to_bytes(self) -> bytes:
        """The case as the content of one safetensors file. Raises ``CaseError`` for an input that is not strided."""
        try:
            storages, views = pack(self.inputs)
        except LayoutError as error:
            raise CaseError(str(error)) from error
        header = {
            "schema": SCHEMA,
            "program": self.program.to_data(),
            "inputs": views,
            **{label: getattr(self, label) for label in _LABELS},
            "index": self.index,
            "tags": list(self.tags),
        }
        return safetensors.torch.save(storages, {_KEY: json.dumps(header, separators=(",", ":"), allow_nan=False)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Case:
        """Read what ``to_bytes`` wrote. Raises ``CaseError`` saying what is wrong; evaluates nothing."""
        header = _header(data)
        try:
            storages = safetensors.torch.load(bytes(data))
        except (SafetensorError, ValueError, KeyError, TypeError) as error:
            raise CaseError(f"damaged case: {error}") from error
        try:
            labels = {label: header[label] for label in _LABELS}
            index, tags = header["index"], header["tags"]
            if not all(isinstance(value, str) for value in [*labels.values(), *tags]) or type(index) is not int:
                raise CaseError("damaged case: source, op, dtype, variant, index or tags are of the wrong type")
            _check_labels([*labels.items(), *(("tag", tag) for tag in tags)])
            if missing := registration.needs(tags):
                message = f"the case needs {', '.join(missing)}: give --ops-from {missing[0]}, if you want it imported"
                raise CaseError(message)
            program = Program.from_data(header["program"])
            views = unpack(storages, header["inputs"])
            missing = [name for name in program.inputs if name not in views]
            if missing:
                raise CaseError(f"damaged case: no tensor for input {missing[0]!r}")
            inputs = {name: views[name] for name in program.inputs}
            return cls(program, inputs, **labels, index=index, tags=tuple(tags))
        except (ProgramError, LayoutError) as error:
            raise CaseError(f"damaged case: {error}") from error
        except (KeyError, TypeError, RecursionError) as error:
            raise CaseError(f"damaged case: field {error} is missing or malformed") from error

    def save(self, path: str | Path) -> None:
        """Write the case to a file."""
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> Case:
        """Read a case file. Raises ``CaseError`` naming the file."""
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise CaseError(f"{path}: {error.strerror or error}") from error
        except CaseError as error:
            raise CaseError(f"{path}: {error}") from error


@dataclass(frozen=True)
class Untested:
    """What a source knows of but cannot turn into a case, with the reason."""

    source: str
    op: str
    dtype: str
    reason: str
    index: int | None = None
    variant: str = "default"

    @property
    def id(self) -> str:
        """Like a case's; ``*`` stands for every index."""
        tail = "" if self.variant == "default" else f":{self.variant}"
        return f"{self.source}:{self.op}:{self.dtype}:{'*' if self.index is None else self.index}{tail}"


def _check_labels(labels: Iterable[tuple[str, str]]) -> None:
    """Refuse what would steer a terminal, or fill it: labels are printed, and name files."""
    for label, text in labels:
        if len(text) > MAX_LABEL:
            raise CaseError(f"damaged case: {label} has {len(text):,} characters; at most {MAX_LABEL:,} can be used")
        if visible(text) != text:
            raise CaseError(f"damaged case: {label} has control characters: {one_line(ascii(text))}")


def _header(data: bytes) -> dict[str, Any]:
    """The case's own JSON, out of the safetensors header."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise CaseError("truncated or not a case file")
    try:
        outer = json.loads(data[8 : 8 + length])
        text = outer["__metadata__"][_KEY]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CaseError("not a case file: its header holds no torchstone metadata") from error
    try:
        header = json.loads(text)
        schema = header["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CaseError("damaged case: its metadata is not the JSON of a case") from error
    if type(schema) is not int or schema < 1:
        raise CaseError(f"damaged case: schema {schema!r}")
    if schema > SCHEMA:
        raise CaseError(f"written by a newer torchstone (schema {schema}, this one reads {SCHEMA}): upgrade to read it")
    return header
