"""The source ``losses``: a few losses on a batch of four, as a training loop calls them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import DTYPES
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.sampling import check_dtypes, seeded

SOURCE = "losses"
LOSSES = {
    "huber": "torch.nn.functional.huber_loss",
    "l1": "torch.nn.functional.l1_loss",
    "mse": "torch.nn.functional.mse_loss",
}
REDUCTIONS = ("mean", "sum", "none")


def op_names() -> list[str]:
    return sorted(LOSSES)


def dtypes_of(op: str) -> list[str]:
    select([op])
    return ["float32", "float64"]


def tags_of(op: str) -> frozenset[str]:
    select([op])
    return frozenset({"nn"})


def select(ops: Iterable[str] | None = None) -> list[str]:
    return match(ops, LOSSES, "loss")


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case]:
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        for dtype in dtypes_of(op):
            if wanted is None or dtype in wanted:
                yield from (case(op, dtype, index) for index in range(len(REDUCTIONS))[:limit_per_op])


def case(op: str, dtype: str, index: int) -> Case:
    if dtype not in dtypes_of(op) or index >= len(REDUCTIONS):
        raise InputError(f"{op} has {len(REDUCTIONS)} samples of {', '.join(dtypes_of(op))}")
    call = Call(LOSSES[op], (Ref("guess"), Ref("truth")), {"reduction": REDUCTIONS[index]}, "loss")
    with seeded(f"{SOURCE}:{op}:{dtype}:{index}"):  # the same numbers wherever this id is asked for
        inputs = {name: torch.randn(4, 3, dtype=DTYPES[dtype]) for name in ("guess", "truth")}
    return Case(Program(("guess", "truth"), (call,), Ref("loss")), inputs, SOURCE, op, dtype, index=index)
