"""Small whole models as cases: an MLP, a residual CNN, an encoder, a decoder without and with a cache, an LSTM, U-Net.

A case is what the model's forward calls, with its parameters and buffers as inputs. Samples are in evaluation mode with
three rows, in training mode with three, and in evaluation mode with one row and with five.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES, ProgramError
from torchstone.conformance.sources.models.examples import EXAMPLES
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.sampling import check_dtypes, first_line, seeded
from torchstone.conformance.sources.tracing import NotExpressible, record

SOURCE = "models"
SAMPLES = ((3, False), (3, True), (1, False), (5, False))
"""Batch size, and whether in training mode, of each sample."""


def op_names() -> list[str]:
    """Every model, sorted."""
    return sorted(EXAMPLES)


def dtypes_of(op: str) -> list[str]:
    """The dtypes of the models' parameters."""
    match([op], EXAMPLES, "model")
    return ["float32", "float64", "float16", "bfloat16"]


def select(ops: Iterable[str] | None = None) -> list[str]:
    """The models meant by names or shell patterns, sorted. Raises as ``opinfo.select``."""
    return match(ops, EXAMPLES, "model")


def tags_of(op: str) -> frozenset[str]:
    """The tags of a model."""
    match([op], EXAMPLES, "model")
    return frozenset({"model"})


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case | Untested]:
    """Cases in a fixed order, as ``opinfo.iterate`` gives them."""
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        for dtype in dtypes_of(op):
            if wanted is None or dtype in wanted:
                for index in itertools.islice(range(len(SAMPLES)), limit_per_op):
                    yield _entry(op, dtype, index)


def case(op: str, dtype: str, index: int) -> Case:
    """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
    if dtype not in dtypes_of(op) or index >= len(SAMPLES):
        raise InputError(f"{op} has no sample {index} of {dtype}; it has {len(SAMPLES)} of {', '.join(dtypes_of(op))}")
    entry = _entry(op, dtype, index)
    if isinstance(entry, Case):
        return entry
    raise InputError(f"{entry.id} cannot be expressed as a program: {entry.reason}")


def _entry(op: str, dtype: str, index: int) -> Case | Untested:
    example = EXAMPLES[op]
    batch, training = SAMPLES[index]
    with seeded(f"{SOURCE}:{op}:{dtype}:{index}"):
        try:
            model = example.model(DTYPES[dtype]).train(training)
            args = example.args(batch, DTYPES[dtype])
            state = [*model.parameters(), *model.buffers()]
            program, inputs = record(lambda args, _: model(*args), (args, state), {})
        except (NotExpressible, ProgramError) as error:
            return Untested(SOURCE, op, dtype, str(error), index)
        except Exception as error:
            return Untested(SOURCE, op, dtype, f"eager raises {type(error).__name__}: {first_line(error)}", index)
    return Case(program, inputs, SOURCE, op, dtype, index=index, tags=("train",) if training else ())
