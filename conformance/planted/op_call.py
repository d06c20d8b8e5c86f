"""An op that a program runs, as a defect sees it: its arguments by name, and eager's result for any change of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchstone.compiler._torch.operators import base_name, overload_name, schema_of


class OpCall:
    """One call of a functional ATen op. ``call["dim"]`` is an argument, defaults included.

    ``state`` is kept by the compiled callable from one call to the next; its key ``calls`` says which call this is,
    from 1.
    """

    def __init__(self, op: Any, arguments: Mapping[str, Any], state: dict[Any, Any]) -> None:
        self.op, self.arguments, self.state = op, dict(arguments), state

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def __contains__(self, name: str) -> bool:
        return name in self.arguments

    @property
    def x(self) -> torch.Tensor:
        """The first tensor among the arguments."""
        return self.tensors[0]

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The arguments that are tensors, in order."""
        return [value for value in self.arguments.values() if isinstance(value, torch.Tensor)]

    @property
    def name(self) -> str:
        """Without namespace and overload."""
        return base_name(self.op)

    def right(self, /, **changes: Any) -> Any:
        """Eager's result, with some arguments replaced."""
        if unknown := set(changes) - set(self.arguments):
            raise TypeError(f"{self.op} has no argument {', '.join(sorted(unknown))}")
        given = self.arguments | changes
        positional, named = [], {}
        for argument in schema_of(self.op).arguments:
            if argument.kwarg_only:
                named[argument.name] = given[argument.name]
            else:
                positional.append(given[argument.name])
        return self.op(*positional, **named)


def bound(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call by name, in the schema's order, defaults filled in."""
    found = {}
    for place, argument in enumerate(schema_of(op).arguments):
        if place < len(args):
            found[argument.name] = args[place]
        elif argument.name in kwargs:
            found[argument.name] = kwargs[argument.name]
        else:
            found[argument.name] = argument.default_value
    return found


def written(op: Any) -> list[str]:
    """The arguments that the op writes to."""
    return [a.name for a in schema_of(op).arguments if a.alias_info is not None and a.alias_info.is_write]


def functional(op: Any) -> Any | None:
    """The op that returns what ``op`` writes to its arguments, None where there is none. Itself if it writes none."""
    outs = written(op)
    if not outs:
        return op
    name = base_name(op)
    packet = getattr(torch.ops.aten, name.rstrip("_"), None)
    if packet is None:
        return None
    if name.endswith("_"):
        overload = getattr(packet, overload_name(op), None)
        return overload if overload is not None and not written(overload) else None
    wanted = [argument.name for argument in schema_of(op).arguments if argument.name not in outs]
    for other in packet.overloads():
        overload = getattr(packet, other)
        if not written(overload) and [a.name for a in schema_of(overload).arguments] == wanted:
            return overload
    return None
