"""What PyTorch's own kernels do while a compiled callable runs, as PyTorch's profiler sees it.

It sees every op that goes through the dispatcher, from Python and from C++, and does not change what is run, as a
dispatch mode would. So it tells a compiler's own code from what the compiler leaves to eager.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, cast

from torchstone.compiler._torch.operators import schemas_named
from torchstone.conformance.oracle.op_traits.execution import COMPUTES_NOTHING


@contextmanager
def eager_ops(among: Collection[str] | None = None) -> Iterator[Counter[str]]:
    """Count, when the block is left, the ATen ops that ran in it, by name (``aten::mm``), not what they call in turn.

    Ops that compute nothing are left out: views and bare allocations. Of one that may copy (``reshape``), the copy is
    counted. With ``among`` none but the operators of these names count (``mm``, in place and inside too).
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or the profiler tells on stderr that it starts and stops
    from torch.autograd.profiler import profile

    ops: Counter[str] = Counter()
    with profile(use_kineto=False) as seen:
        yield ops
    if among is not None and not any(operator_name(name) in among for name in _names(seen)):
        return  # who calls whom is what takes long to find out
    for event in cast(Any, seen).function_events or ():
        above = event.cpu_parent
        while above is not None and not _computes(above.name):
            above = above.cpu_parent
        if above is None and _computes(event.name) and (among is None or operator_name(event.name) in among):
            ops[event.name] += 1


@contextmanager
def every_op() -> Iterator[Counter[str]]:
    """Count, when the block is left, all the ATen ops that ran in it, by name, those that others call in turn too.

    One that comes back to itself, as a Python rule for an op does that calls it, counts once.
    """
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from torch.autograd.profiler import profile

    ops: Counter[str] = Counter()
    with profile(use_kineto=False) as seen:
        yield ops
    for event in cast(Any, seen).function_events or ():
        above = event.cpu_parent
        while above is not None and above.name != event.name:
            above = above.cpu_parent
        if above is None and _computes(event.name):
            ops[event.name] += 1


def operator_name(name: str) -> str:
    """The operator that a profiler's event is of: ``add`` of ``aten::add_``."""
    return name.partition("::")[2].strip("_")


def _names(seen: Any) -> set[str]:
    return {event.name() for event in seen.kineto_results.events()}


@cache
def _computes(name: str) -> bool:
    """Whether it is an op, and one that does more than to return a view, or memory that nobody has written to."""

    if (
        "::" not in name
        or " " in name
        or COMPUTES_NOTHING.has(name.removeprefix("aten::"))
        or name.startswith(("aten::empty", "aten::new_empty"))
    ):
        return False
    schemas = schemas_named(name)
    results = [result for schema in schemas for result in schema.returns if "Tensor" in str(result.type)]
    return not results or any(r.alias_info is None or r.alias_info.is_write for r in results)
