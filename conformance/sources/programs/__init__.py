"""Short programs as cases: what no single op does, by pairs of classes of steps.

A reduction over a dim that no operand has, a view of a result that is written to and read, ``log`` of ``exp``: a
compiler that has each op right may have them wrong together. An op of this source is a pair of classes (``steps``):
``view+reduce``. Each of its programs takes one step of the first class, and on its result some of the second, each
of which is a result: in all of them, each step of the one class is before each step of the other.

    r0 = torch.transpose(x0, 0, -1)
    r1 = torch.sum(r0, 0)
    r2 = torch.transpose(x1, 0, -1)
    r3 = torch.amax(r2, -1)
    return (r1, r3)
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator

import torch

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES, Ref
from torchstone.conformance.program.program import Program
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.programs.draft import Draft
from torchstone.conformance.sources.programs.steps import STEPS
from torchstone.conformance.sources.sampling import check_dtypes, seeded

SOURCE = "programs"
FIRST_ONLY = "create"
"""The class that does not read the result before it."""

KNOWN = ("float32", "float64", "bfloat16", "complex64", "int64", "uint8", "bool")
TOGETHER = 6
"""Steps of the second class in one program, at most."""
SHAPE = (4, 3, 2)
"""Sizes of what programs begin with: three that differ."""


@functools.cache
def op_names() -> list[str]:
    """Every pair of classes, sorted."""
    return sorted(f"{one}+{other}" for one, other in itertools.product(STEPS, STEPS) if other != FIRST_ONLY)


def dtypes_of(op: str) -> list[str]:
    """The dtypes of all programs. Raises ``UnknownName``."""
    select([op])
    return list(KNOWN)


def select(ops: Iterable[str] | None = None) -> list[str]:
    """The pairs meant by names or shell patterns, sorted. Raises as ``opinfo.select``."""
    return match(ops, op_names())


def tags_of(op: str) -> frozenset[str]:
    """The two classes."""
    return frozenset(op.split("+"))


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case | Untested]:
    """Cases in a fixed order: by pair, then dtype; programs that eager refuses are left out."""
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        for dtype in KNOWN:
            if wanted is None or dtype in wanted:
                found = (_program(op, dtype, index) for index in range(len(_places(op))))
                yield from itertools.islice((case for case in found if case is not None), limit_per_op)


def case(op: str, dtype: str, index: int) -> Case:
    """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    found = None
    if dtype in KNOWN and index in indices_of(op):
        found = _program(op, dtype, index)
    if found is None:
        raise InputError(f"{op} has no program {index} of {dtype}")
    return found


def indices_of(op: str) -> range:
    """The indices of the programs of a pair: eager refuses some of these. Raises ``UnknownName``."""
    select([op])
    return range(len(_places(op)))


def _places(op: str) -> list[tuple[int, range]]:
    """The programs of a pair by index: each first step with a block of second ones, then each with the next block.

    Of a class with itself, steps that stand together come first: those that undo each other.
    """
    first, second = (STEPS[name] for name in op.split("+"))
    blocks = [range(at, min(at + TOGETHER, len(second))) for at in range(0, len(second), TOGETHER)]
    turns = itertools.product(range(len(blocks)), range(len(first)))
    return [(row, blocks[(row // TOGETHER + shift) % len(blocks)]) for shift, row in turns]


def _program(op: str, dtype: str, index: int) -> Case | None:
    """The program of an index, which alone it depends on; None where eager takes none of its steps."""
    row, block = _places(op)[index]
    with seeded(f"{SOURCE}:{op}:{dtype}:{index}"), warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return _drafted(op, dtype, row, block, index)


def _drafted(op: str, dtype: str, row: int, block: Iterable[int], index: int) -> Case | None:
    """One program, None where eager takes none of its steps.

    Compilers rewrite and fuse what is read once. In two programs of three each second step has a first one of its own,
    on an input of its own; in the third they read one result, which is a result of the program as well.
    """
    first, second = (STEPS[name] for name in op.split("+"))
    draft, outputs, shared = Draft(DTYPES[dtype]), [], index % 3 == 2
    between = None
    for at in block:
        with draft.attempt():
            if between is None or not shared:
                between = first[row](draft, draft.input(*SHAPE))
            outputs.append(second[at](draft, between))
    if not outputs:
        return None
    if shared and between is not None and isinstance(draft.values.get(between.name), torch.Tensor):
        outputs.append(between)
    used = {ref.name for call in draft.calls for ref in call.refs()}
    inputs = {name: tensor for name, tensor in draft.inputs.items() if name in used}
    program = Program(tuple(inputs), tuple(draft.calls), tuple(dict.fromkeys(Ref(r.name, r.path) for r in outputs)))
    found = Case(program, inputs, SOURCE, op, dtype, index=index)
    return None if undefined_behavior(found) else found
