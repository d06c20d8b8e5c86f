"""Records of ops in PyTorch's form, ``OpInfo``, as a source of cases: every op, every dtype, every sample.

Sampling is seeded by (op, dtype), so a case id means the same bytes whether it is asked for alone or among all.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.program.call_targets import lookup, name_of
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.program.literals import DTYPES, ProgramError
from torchstone.conformance.sources.names import match
from torchstone.conformance.sources.sampling import check_dtypes, first_line, seeded
from torchstone.conformance.sources.tags import tags_of_info
from torchstone.conformance.sources.tracing import NotExpressible, record, single_call

FIRST_DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "bool")
"""float32 first, because it is what most people ask for; then by kind and width. The others follow by name."""


class OpDatabase:
    """The source called ``source`` of the records that ``load`` gives, which is called when the first is asked for."""

    def __init__(self, source: str, load: Callable[[], Iterable[Any]]) -> None:
        self.source = source
        self._load = load

    @functools.cached_property
    def infos(self) -> dict[str, Any]:
        """Op name, with the variant's name when it has one, to its ``OpInfo``."""
        return {op_name(info): info for info in self._load()}

    def op_names(self) -> list[str]:
        """Every op of the database, sorted."""
        return sorted(self.infos)

    def dtypes_of(self, op: str) -> list[str]:
        """The dtypes the op supports on CPU. Raises ``UnknownName`` for an op that is not in the database."""
        return [name for name in _dtype_order() if DTYPES[name] in self.info_of(op).supported_dtypes("cpu")]

    def info_of(self, op: str) -> Any:
        """The database's own record of an op. Raises ``UnknownName``."""
        if op not in self.infos:
            raise UnknownName("op", op, self.infos)
        return self.infos[op]

    def select(self, ops: Iterable[str] | None = None) -> list[str]:
        """The ops meant by names or patterns, sorted. Raises ``UnknownName``, ``InputError`` for a vain pattern."""
        return match(ops, self.infos)

    def tags_of(self, op: str) -> frozenset[str]:
        """The tags of an op, see ``sources.tags``. Raises ``UnknownName``."""
        return _tags_of(self, op)

    def iterate(
        self, ops: Iterable[str] | None = None, dtypes: Iterable[str] | None = None, limit_per_op: int | None = None
    ) -> Iterator[Case | Untested]:
        """Cases in a fixed order: by op, then dtype, then sample; an ``Untested`` where a sample is no program.

        ``ops`` are names or shell patterns, ``dtypes`` names like ``float32``; ``limit_per_op`` keeps the first
        samples of each op and dtype. Raises ``UnknownName`` at once for a name that does not exist.
        """
        wanted = check_dtypes(dtypes)
        chosen = self.select(ops)
        return itertools.chain.from_iterable(self._of_op(op, wanted, limit_per_op) for op in chosen)

    def case(self, op: str, dtype: str, index: int) -> Case:
        """One case by its coordinates. Raises ``UnknownName`` or ``InputError`` when there is none."""
        if dtype not in DTYPES:
            raise UnknownName("dtype", dtype, DTYPES)
        known = self.dtypes_of(op)
        if dtype not in known:
            raise InputError(f"{op} has no samples for {dtype} (it has {', '.join(known) or 'none'})")
        for entry in self._of_op(op, [dtype], index + 1):
            if entry.index == index:
                if isinstance(entry, Case):
                    return entry
                raise InputError(f"{entry.id} cannot be expressed as a program: {entry.reason}")
        raise InputError(f"{op} has no sample {index} for {dtype}")

    def _of_op(self, op: str, dtypes: list[str] | None, limit: int | None) -> Iterator[Case | Untested]:
        for dtype in self.dtypes_of(op):
            if dtypes is None or dtype in dtypes:
                yield from self._of_dtype(op, dtype, limit)

    def _of_dtype(self, op: str, dtype: str, limit: int | None) -> Iterator[Case | Untested]:
        info = self.info_of(op)
        samples: list[Any] = []
        problem = ""
        with seeded(f"{op}:{dtype}"):
            try:  # one by one: what was drawn before an exception is kept
                for sample in itertools.islice(self.samples(info, dtype), limit):
                    samples.append(sample)
            except Exception as error:
                problem = f"sampling raises {type(error).__name__}: {first_line(error)}"
        for index, sample in enumerate(samples):
            yield self.entry_of(info, op, dtype, index, sample)
        if problem:
            yield Untested(self.source, op, dtype, problem)
        elif not samples and limit != 0:
            yield Untested(self.source, op, dtype, "the database has no sample")

    def samples(self, info: Any, dtype: str) -> Iterator[Any]:
        """The ``SampleInput``s of an op in a dtype."""
        return iter(info.sample_inputs("cpu", DTYPES[dtype], requires_grad=False))

    def entry_of(self, info: Any, op: str, dtype: str, index: int, sample: Any) -> Case | Untested:
        """A sample as a case, or why it is no program."""
        try:
            target = self.target_of(op)
            args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
            if target is not None:
                program, inputs = single_call(target, args, kwargs)
            else:
                with seeded(f"{op}:{dtype}:{index}"):
                    program, inputs = record(info.op, args, kwargs)
        except (NotExpressible, ProgramError) as error:
            return Untested(self.source, op, dtype, str(error), index)
        except Exception as error:
            return Untested(self.source, op, dtype, f"eager raises {type(error).__name__}: {first_line(error)}", index)
        return Case(program, inputs, self.source, op, dtype, index=index)

    def target_of(self, op: str) -> str | None:
        """The public name of what the database calls, or ``None`` when that is some function of its own."""
        return _target_of(self, op)


def op_name(info: Any) -> str:
    """``nn.functional.softmax``, ``linalg.norm.subgradients_at_zero``."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


@functools.cache
def _tags_of(database: OpDatabase, op: str) -> frozenset[str]:
    return tags_of_info(database.info_of(op))


@functools.cache
def _target_of(database: OpDatabase, op: str) -> str | None:
    info = database.info_of(op)
    plain = info.name.removeprefix("torch.")
    for candidate in (f"torch.{plain}", f"torch.Tensor.{plain}"):
        if lookup(candidate) is info.op:
            return candidate
    return name_of(info.op)


def _dtype_order() -> list[str]:
    return [*FIRST_DTYPES, *sorted(set(DTYPES) - set(FIRST_DTYPES))]
