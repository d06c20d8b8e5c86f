"""What kind of op it is, as PyTorch itself tells: the class and fields of its ``OpInfo``, the schema and tags in ATen.

An op has every tag whose rule holds. ``--tag`` selects by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler._torch.operators import schema_of

Rule = Callable[[Any, Sequence[Any]], bool]


@dataclass(frozen=True, slots=True)
class Tag:
    """``holds(info, overloads)`` is asked of an op's ``OpInfo`` and of the ATen overloads of its name."""

    name: str
    doc: str
    holds: Rule = lambda info, overloads: False


def _class(*names: str) -> Rule:
    return lambda info, overloads: any(base.__name__ in names for base in type(info).__mro__)


def _named(*prefixes: str) -> Rule:
    return lambda info, overloads: info.name.startswith(prefixes) or info.aten_name.startswith(prefixes)


def _tagged(name: str) -> Rule:
    tag = getattr(torch.Tag, name, None)
    return lambda info, overloads: any(tag in overload.tags for overload in overloads)


def _or(*rules: Rule) -> Rule:
    return lambda info, overloads: any(rule(info, overloads) for rule in rules)


def _views(info: Any, overloads: Sequence[Any]) -> bool:
    """Whether an overload returns an alias of an argument that it does not write to."""
    return any(
        r.alias_info is not None and not r.alias_info.is_write
        for overload in overloads
        for r in schema_of(overload).returns
    )


_ROWS = (
    Tag("elementwise", "One element of the result for one of each operand.",
        _or(_class("UnaryUfuncInfo", "BinaryUfuncInfo"), _tagged("pointwise"))),
    Tag("unary", "Elementwise, of one tensor.", _class("UnaryUfuncInfo")),
    Tag("binary", "Elementwise, of two tensors.", _class("BinaryUfuncInfo")),
    Tag("reduction", "Many elements to one along dims.", _or(_class("ReductionOpInfo"), _tagged("reduction"))),
    Tag("view", "The result may share an operand's memory.", _views),
    Tag("inplace", "Has an in-place form.", lambda info, overloads: info.get_inplace() is not None),
    Tag("out", "Takes out=.", lambda info, overloads: bool(info.supports_out)),
    Tag("backward", "Differentiable: has a formula for its gradient.",
        lambda info, overloads: bool(info.supports_autograd)),
    Tag("random", "Draws from a random generator.", _tagged("nondeterministic_seeded")),
    Tag("linalg", "Linear algebra of PyTorch's linalg.", _named("linalg.", "linalg_")),
    Tag("fft", "Fourier transforms.", _or(_class("SpectralFuncInfo"), _named("fft.", "fft_"))),
    Tag("special", "Special functions.", _named("special.", "special_")),
    Tag("nn", "Of torch.nn.functional.", _named("nn.functional.")),
    Tag("masked", "Of torch.masked.", _named("masked.")),
    Tag("signal", "Windows of torch.signal.", _named("signal.")),
    Tag("core", "Of PyTorch's core ATen opset.", _tagged("core")),
    Tag("dynamic-shape", "The sizes of the result depend on values.", _tagged("dynamic_output_shape")),
    Tag("data-dependent", "Gives Python a number that depends on values.", _tagged("data_dependent_output")),
    Tag("module", "A module of torch.nn."),
    Tag("model", "A whole model."),
    Tag("train", "In training mode."),
    Tag("refused", "Inputs that eager refuses."),
    Tag("regression", "A bug of the past, reduced."),
)  # fmt: skip
TAGS: Mapping[str, Tag] = {row.name: row for row in _ROWS}
"""Every tag of an op; modules are tagged with the file of torch.nn.modules that has them as well."""

OF_CASES = frozenset({"train", "refused"})
"""Tags that only some cases of an op have."""


def tags_of_info(info: Any) -> frozenset[str]:
    """The tags of an op of PyTorch's database."""
    packets = [getattr(torch.ops.aten, name, None) for name in (info.aten_name, f"native_{info.aten_name}")]
    overloads = [getattr(packet, name) for packet in packets if packet is not None for name in packet.overloads()]
    return frozenset(row.name for row in _ROWS if row.holds(info, overloads))
