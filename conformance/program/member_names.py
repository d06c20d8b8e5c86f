"""What the programs of a bundle call their inputs and results: each has the number of the program in front."""

from __future__ import annotations

import re

from torchstone.conformance.program.program import Program

OF_ALL = "gradients"
"""What the gradients of all members are called: a name of no member's, for each of these has its number in front."""

_PREFIX = re.compile(r"p(\d+)_")
_NAME = re.compile(r"\bp(\d+)_\w+")


def prefix(number: int) -> str:
    """What stands in front of the names of a member."""
    return f"p{number}_"


def is_bundle(fn: object) -> bool:
    """Whether a callable is the program of a bundle of several: all that it has is called as it is there."""
    if not isinstance(fn, Program) or not fn.calls:
        return False
    names = {*fn.inputs, *(call.result for call in fn.calls)} - {OF_ALL}
    numbers = [_PREFIX.match(name) for name in names]
    return None not in numbers and len({match[1] for match in numbers if match}) > 1


def members_named(text: str) -> set[int]:
    """The numbers of the members of which a text, such as a line of code, has names."""
    return {int(number) for number in _NAME.findall(text)}
