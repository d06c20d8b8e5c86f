"""Small whole models as cases: our own, and architectures of ``timm`` and ``transformers`` where these are installed.

Our own are an MLP, a residual CNN, an encoder, a decoder without and with a cache, an LSTM and a U-Net. Their samples
are in evaluation mode with three rows, in training mode with three, and in evaluation mode with one row and with five.
Those of architectures are in evaluation mode with two rows and with one.

A case is what the model's forward calls, with its parameters and buffers as inputs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

from torchstone.conformance.errors import InputError
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES, ProgramError
from torchstone.conformance.sources.models.architectures import CHOSEN, HELD_OUT
from torchstone.conformance.sources.models.example import Example, tensors_of
from torchstone.conformance.sources.models.examples import EXAMPLES
from torchstone.conformance.sources.models.packages import INSTALL, installed
from torchstone.conformance.sources.names import is_pattern, match
from torchstone.conformance.sources.sampling import check_dtypes, first_line, seeded
from torchstone.conformance.sources.tracing import NotExpressible, record

SOURCE = "models"
EVERY: Mapping[str, Example] = {**EXAMPLES, **CHOSEN, **HELD_OUT}


def op_names() -> list[str]:
    """Every model whose package is installed, sorted."""
    return sorted(name for name, example in EVERY.items() if not example.package or installed(example.package))


def dtypes_of(op: str) -> list[str]:
    """The dtypes of the models' parameters."""
    select([op])
    return ["float32", "float64", "float16", "bfloat16"]


def select(ops: Iterable[str] | None = None) -> list[str]:
    """The models meant by names or shell patterns, sorted. Raises as ``opinfo.select``."""
    wanted = None if ops is None else list(ops)
    known = op_names()
    for name in wanted or ():
        if name in EVERY and name not in known and not is_pattern(name):
            raise InputError(f"{name} is of {EVERY[name].package}, which is not installed; {INSTALL}")
    return match(wanted, known, "model")


def tags_of(op: str) -> frozenset[str]:
    """The tags of a model."""
    select([op])
    return frozenset({"model"})


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case | Untested]:
    """Cases in a fixed order, as ``opinfo.iterate`` gives them."""
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        for dtype in dtypes_of(op):
            if wanted is None or dtype in wanted:
                for index in itertools.islice(range(len(EVERY[op].samples)), limit_per_op):
                    yield _entry(op, dtype, index)


def case(op: str, dtype: str, index: int) -> Case:
    """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
    if dtype not in (dtypes := dtypes_of(op)) or index >= len(EVERY[op].samples):
        count = len(EVERY[op].samples)
        raise InputError(f"{op} has no sample {index} of {dtype}; it has {count} of {', '.join(dtypes)}")
    entry = _entry(op, dtype, index)
    if isinstance(entry, Case):
        return entry
    raise InputError(f"{entry.id} cannot be expressed as a program: {entry.reason}")


def _entry(op: str, dtype: str, index: int) -> Case | Untested:
    example = EVERY[op]
    batch, training = example.samples[index]
    with seeded(f"{SOURCE}:{op}:{dtype}:{index}"):
        try:
            model = example.model(DTYPES[dtype]).train(training)
            inputs = example.args(batch, DTYPES[dtype]), example.kwargs(batch, DTYPES[dtype])
            state = [*model.parameters(), *model.buffers()]

            def call(inputs: tuple[tuple[object, ...], dict[str, object]], _: object) -> object:
                result = model(*inputs[0], **inputs[1])
                return tensors_of(result) if example.package else result

            program, tensors = record(call, (inputs, state), {})
        except (NotExpressible, ProgramError, InputError) as error:
            return Untested(SOURCE, op, dtype, str(error), index)
        except Exception as error:
            return Untested(SOURCE, op, dtype, f"eager raises {type(error).__name__}: {first_line(error)}", index)
    return Case(program, tensors, SOURCE, op, dtype, index=index, tags=("train",) if training else ())
