"""What rounding does to an op, by its name in PyTorch's op database: read from the oracle's table of op traits."""

from __future__ import annotations

import functools

import torch

from torchstone.conformance.oracle.op_traits.rounding import (
    BRANCH_CUTS,
    GIVES_INTEGERS_OR_BOOLEANS,
    JUMPS,
    NEVER_ROUNDS,
    NEVER_ROUNDS_BY_ANOTHER_NAME,
    ROUNDS_IN_THE_FUZZER,
)


def jumps(op: str, name: str) -> bool:
    """Say whether an op, given with and without its variant, is no continuous function of its operands.

    Such an op is given exact operands only. An op that turns floating point into integers or booleans jumps too,
    whatever it is; that needs no list, the draft sees it in the result.
    """
    return JUMPS.has(op) or JUMPS.has(name)


def cuts(op: str, name: str) -> bool:
    """Say whether an op, given with and without its variant, jumps for complex operands."""
    return jumps(op, name) or BRANCH_CUTS.has(op) or BRANCH_CUTS.has(name)


def exact(op: str, name: str) -> bool:
    """Say whether an op, given with and without its variant, gives exact floating results of exact operands."""
    return _exact(op) or _exact(name)


@functools.cache
def _exact(name: str) -> bool:
    if ROUNDS_IN_THE_FUZZER.has(name):
        return False
    operator = name.removeprefix("nn.functional.").replace(".", "_")
    never_rounds = NEVER_ROUNDS.has(operator) or is_view(operator) or NEVER_ROUNDS_BY_ANOTHER_NAME.has(name)
    return never_rounds and not GIVES_INTEGERS_OR_BOOLEANS.has(operator)


def is_view(operator: str) -> bool:
    """Whether ATen's operator of this name returns a view of its operand."""
    packet = getattr(torch.ops.aten, operator, None)
    return packet is not None and any(getattr(packet, overload).is_view for overload in packet.overloads())
