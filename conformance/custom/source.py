"""Ops of the user's own as a source of cases, and overloads of ATen's that PyTorch's op database lacks.

The arguments come from the op's sample function, seeded by the op and the dtype, so that an id means the same bytes in
every process. Each sample is asked as it is; then the first ones in other forms: into given results, by the overload
that takes ``out=``, and with a number written into a result that is a view of an argument.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch import operators
from torchstone.conformance.custom import registration
from torchstone.conformance.custom.domain import PROFILES, Domain, filled
from torchstone.conformance.custom.learn import learn
from torchstone.conformance.custom.registration import CustomOp
from torchstone.conformance.custom.signature import arguments_of, split
from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.escape import file_name
from torchstone.conformance.files import replace_file
from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES, ProgramError, Ref, leaf_paths
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.program.tensor_storage import copy_tensors
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.op_database import FIRST_DTYPES
from torchstone.conformance.sources.sampling import check_dtypes, first_line, seeded
from torchstone.conformance.sources.tracing import NotExpressible, single_call

SOURCE = "custom"
MOST = 200
"""Samples of a dtype that are taken from a sample function."""
ASKED = (
    *FIRST_DTYPES, "int8", "int16", "uint8", "uint16", "uint32", "uint64", "complex32",
    "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
)  # fmt: skip
"""The dtypes that an op is asked for, float32 first."""
FOLDER = Path(".torchstone/ops")
"""Where domains are kept."""
IN_OTHER_FORMS = 12
"""Samples that are asked in other forms, too."""


def op_names() -> list[str]:
    """The ops that are registered, or were asked for by name."""
    return sorted(registration.ops())


def op_of(op: str) -> CustomOp:
    """The op of a name. Raises ``UnknownName``."""
    known = registration.ops()
    if op not in known:
        raise UnknownName("op", op, known, more="; the module that defines it is named with --ops-from")
    return known[op]


def select(ops: Iterable[str] | None = None) -> list[str]:
    """The ops meant by names or shell patterns, sorted. Raises ``UnknownName``, ``InputError`` for a vain pattern."""
    return match(ops, registration.ops())


def tags_of(op: str) -> frozenset[str]:
    """No tags: they say what PyTorch's database knows of its ops. Raises ``UnknownName``."""
    op_of(op)
    return frozenset()


def dtypes_of(op: str) -> list[str]:
    """The dtypes of which eager takes a sample, float32 first. Raises ``UnknownName``."""
    return [name for name in ASKED if any(isinstance(entry, Case) for entry in entries(op, name))]


def refusals(op: str, taken: Iterable[str]) -> dict[str, str]:
    """Why eager takes no sample of a dtype, for each that is not among ``taken``."""
    found = {dtype: entries(op, dtype) for dtype in ASKED if dtype not in set(taken)}
    return {dtype: those[0].reason for dtype, those in found.items() if those and isinstance(those[0], Untested)}


def iterate(
    ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
) -> Iterator[Case | Untested]:
    """Cases by op, then dtype, then sample, as ``Source`` has it."""
    wanted = check_dtypes(dtypes)
    for op in select(ops):
        for dtype in ASKED:
            if (wanted is None or dtype in wanted) and any(isinstance(entry, Case) for entry in entries(op, dtype)):
                yield from itertools.islice(entries(op, dtype), limit_per_op)


def case(op: str, dtype: str, index: int) -> Case:
    """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
    op_of(op)
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    found = entries(op, dtype)
    for entry in found:
        if entry.index == index:
            if isinstance(entry, Case):
                return entry
            raise InputError(f"{entry.id} is no case: {entry.reason}")
    raise InputError(f"{op} has no sample {index} for {dtype} (it has {len(found)})")


@functools.cache
def entries(op: str, dtype: str) -> tuple[Case | Untested, ...]:
    """The samples of an op in a dtype, and the first ones in other forms."""
    found = list(_of_samples(op_of(op), dtype))
    cases = [entry for entry in found if isinstance(entry, Case)]
    forms = [form for entry in cases[:IN_OTHER_FORMS] for form in _other_forms(op_of(op), entry)]
    return (*found, *(form.replace(index=len(found) + at) for at, form in enumerate(forms)))


def arguments(op: CustomOp, dtype: torch.dtype) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of calls with tensors of a dtype. Raises what the sample function raises."""
    if op.sample is None:
        known = arguments_of(op)
        for number, call in enumerate(domain_of(op).calls):
            yield split(known, filled(call, dtype, PROFILES[number % len(PROFILES)]))
        return
    for given in op.sample(dtype):
        pair = isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], tuple | list)
        if pair and isinstance(given[1], dict):
            yield tuple(given[0]), dict(given[1])
        elif isinstance(given, tuple | list):
            yield tuple(given), {}
        else:
            yield (given,), {}


def prepare(op: str) -> None:
    """Learn what an op takes, if that is to be learned. Raises as ``domain_of``, and for one that no program may call.

    That comes first: to learn of an op is to call it with whatever it takes, a file's name too.
    """
    resolve(op_of(op).target)
    if op_of(op).sample is None:
        domain_of(op_of(op))


@functools.cache
def domain_of(op: CustomOp) -> Domain:
    """What the op takes, where it has no sample function: read from its file, else learned and written there.

    Raises ``InputError`` for a file that is damaged or was learned from another schema, and for an op of which nothing
    could be learned.
    """
    path = domain_file(op)
    if path.exists():
        found = Domain.from_toml(path.read_text(encoding="utf-8"), str(path))
        if found.schema != str(op.schema or op.target):
            raise InputError(f"{path} is of another schema, {found.schema}: delete it, or change its schema")
        return found
    found = learn(op)
    with contextlib.suppress(OSError, InputError):  # it is learned alike the next time
        path.parent.mkdir(parents=True, exist_ok=True)
        with replace_file(path) as file:
            file.write(found.to_toml().encode())
    return found


def domain_file(op: CustomOp) -> Path:
    """Where the domain of an op is kept, in the current folder."""
    return FOLDER / f"{file_name(op.name)}.toml"


def _of_samples(op: CustomOp, dtype: str) -> Iterator[Case | Untested]:
    given: list[Any] = []
    problem = ""
    with seeded(f"{op.name}:{dtype}"):
        try:  # one by one: what was drawn before an exception is kept
            for sample in itertools.islice(arguments(op, DTYPES[dtype]), MOST):
                given.append(sample)
        except Exception as error:
            problem = f"sampling raises {type(error).__name__}: {first_line(error)}"
    for index, (args, kwargs) in enumerate(given):
        yield _entry(op, dtype, index, args, kwargs)
    if problem:
        yield Untested(SOURCE, op.name, dtype, problem, len(given))


def _entry(op: CustomOp, dtype: str, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Case | Untested:
    try:
        program, inputs = single_call(op.target, args, _with_parameters(op, kwargs))
        with seeded(f"{op.name}:{dtype}:{index}"), torch.no_grad():
            program(*copy_tensors(inputs.values()))
    except (NotExpressible, ProgramError) as error:
        return Untested(SOURCE, op.name, dtype, str(error), index)
    except Exception as error:
        reason = f"eager raises {type(error).__name__}: {first_line(error)}"
        return Untested(SOURCE, op.name, dtype, reason, index)
    return Case(program, inputs, SOURCE, op.name, dtype, index=index, tags=registration.needed_tags())


def _with_parameters(op: CustomOp, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keywords, and a module's parameters and buffers, which are inputs."""
    module = op.function.__dict__.get("module") if hasattr(op.function, "__dict__") else None
    if module is None:
        return kwargs
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {**kwargs, "parameters": {name: tensor.detach().clone() for name, tensor in state.items()}}


def _other_forms(op: CustomOp, given: Case) -> Iterator[Case]:
    if op.schema is None:
        return
    yield from _written_through(op, given)
    yield from _into_given_results(op, given)


def _written_through(op: CustomOp, given: Case) -> Iterator[Case]:
    """A number added to each result that is a view of an argument: the argument changes with it."""
    returns = op.schema.returns
    views = [at for at, one in enumerate(returns) if one.alias_info is not None and not one.alias_info.is_write]
    for at in views:
        ref = Ref("r0", () if len(returns) == 1 else (at,))
        write = Call("torch.Tensor.mul_", (ref, 2), {}, "written")
        program = given.program
        yield from _taken(given, Program(program.inputs, (*program.calls, write), program.outputs), given.inputs)


def _into_given_results(op: CustomOp, given: Case) -> Iterator[Case]:
    """The call by the overload with ``out=``, into results of the right sizes and into empty ones."""
    _, _, namespace, name, _ = op.target.split(".")
    form = out_form(namespace, name, op.schema)
    if form is None:
        return
    with torch.no_grad():
        result = given.program(*given.fresh_args())
    results = [leaf for _, leaf in leaf_paths(result) if isinstance(leaf, Tensor)]
    names = [a.name for a in operators.schema_of(form).arguments if a.is_out]
    if len(names) != len(results):
        return
    (call,) = given.program.calls
    for made in (torch.zeros_like, lambda tensor: tensor.new_empty(0)):
        inputs = given.inputs | {f"{key}_given": made(tensor) for key, tensor in zip(names, results, strict=True)}
        kwargs = call.kwargs | {key: Ref(f"{key}_given") for key in names}
        target = f"torch.ops.{namespace}.{name}.{operators.overload_name(form)}"
        calls = (Call(target, call.args, kwargs, call.result),)
        yield from _taken(given, Program(tuple(inputs), calls, given.program.outputs), inputs)


def out_form(namespace: str, name: str, schema: Any) -> Any:
    """The overload that computes what a functional one does, into given results; None where there is none."""
    packet = getattr(getattr(torch.ops, namespace), name)
    wanted = [(a.name, str(a.type)) for a in schema.arguments]
    for label in packet.overloads():
        form = getattr(packet, label)
        arguments = operators.schema_of(form).arguments
        if any(a.is_out for a in arguments) and [(a.name, str(a.type)) for a in arguments if not a.is_out] == wanted:
            return form
    return None


def _taken(given: Case, program: Program, inputs: dict[str, Tensor]) -> Iterator[Case]:
    changed = given.replace(program=program, inputs=inputs)
    try:
        with torch.no_grad():
            changed.program(*changed.fresh_args())
    except Exception:
        return
    yield changed
