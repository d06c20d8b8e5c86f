"""PyTorch's own module database as cases: every module of torch.nn, in evaluation and in training mode.

What it leaves out, the modules that draw random numbers, is in a table of ours.

A case is what the module's forward calls, with its parameters and buffers as inputs: a program like any other. The
even samples are the module in evaluation mode, the odd ones in training mode.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch.nn.modules.lazy import LazyModuleMixin

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES, ProgramError
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.random_modules import missing
from torchstone.conformance.sources.sampling import check_dtypes, first_line, seeded
from torchstone.conformance.sources.tracing import NotExpressible, record

SOURCE = "modules"


@functools.cache
def _database() -> dict[str, Any]:
    """Module name to its ``ModuleInfo``, or to a row of ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torchstone.compiler._torch.op_database import module_db
    found = {info.name: info for info in module_db}
    return found | {row.name: row for row in missing(found)}


def op_names() -> list[str]:
    """Every module of the database, sorted."""
    return sorted(_database())


def dtypes_of(op: str) -> list[str]:
    """The dtypes a module is tested with. Raises ``UnknownName`` for a module that is not in the database."""
    return [name for name, dtype in DTYPES.items() if dtype in _info(op).dtypes]


def _info(op: str) -> Any:
    if op not in _database():
        raise UnknownName("module", op, _database())
    return _database()[op]


def select(ops: Iterable[str] | None = None) -> list[str]:
    """The modules meant by names or shell patterns, sorted. Raises as ``opinfo.select``."""
    return match(ops, _database(), "module")


def tags_of(op: str) -> frozenset[str]:
    """The tags of a module: the file of torch.nn.modules that has it is one. Raises ``UnknownName``."""
    return frozenset({"module", _info(op).module_cls.__module__.rpartition(".")[2]})


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case | Untested]:
    """Cases in a fixed order, as ``opinfo.iterate`` gives them."""
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        for dtype in dtypes_of(op):
            if wanted is None or dtype in wanted:
                yield from itertools.islice(_of_dtype(op, dtype), limit_per_op)


def case(op: str, dtype: str, index: int) -> Case:
    """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
    if dtype not in dtypes_of(op):
        raise InputError(f"{op} has no samples for {dtype} (it has {', '.join(dtypes_of(op)) or 'none'})")
    for entry in itertools.islice(_of_dtype(op, dtype), index, index + 1):
        if isinstance(entry, Case):
            return entry
        raise InputError(f"{entry.id} cannot be expressed as a program: {entry.reason}")
    raise InputError(f"{op} has no sample {index} for {dtype}")


def _of_dtype(op: str, dtype: str) -> Iterator[Case | Untested]:
    info = _info(op)
    samples: list[tuple[bool, Any]] = []
    with seeded(f"{SOURCE}:{op}:{dtype}"):
        modes = [
            info.module_inputs_func(info, device="cpu", dtype=DTYPES[dtype], requires_grad=False, training=training)
            for training in (False, True)
        ]
        for pair in itertools.zip_longest(*modes):
            samples.extend((bool(mode), item) for mode, item in enumerate(pair) if item is not None)
    for index, (training, sample) in enumerate(samples):
        if sample.forward_input is None:
            yield Untested(SOURCE, op, dtype, "the sample only constructs the module", index)
        else:
            with seeded(f"{SOURCE}:{op}:{dtype}:{index}"):
                yield _entry(info, op, dtype, index, sample, training=training)


def _entry(info: Any, op: str, dtype: str, index: int, sample: Any, *, training: bool) -> Case | Untested:
    args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
    try:
        module = info.module_cls(*sample.constructor_input.args, **sample.constructor_input.kwargs)
        module = module.to(DTYPES[dtype]).train(training)
        if issubclass(info.module_cls, LazyModuleMixin):
            module(*args, **kwargs)  # what the sizes of its parameters are
        state = [*module.parameters(), *module.buffers()]
        program, inputs = record(lambda args, kwargs, _: module(*args, **kwargs), (args, kwargs, state), {})
    except (NotExpressible, ProgramError) as error:
        return Untested(SOURCE, op, dtype, str(error), index)
    except Exception as error:
        return Untested(SOURCE, op, dtype, f"eager raises {type(error).__name__}: {first_line(error)}", index)
    return Case(program, inputs, SOURCE, op, dtype, index=index, tags=("train",) if training else ())
