"""What a target is: which ops it takes, how it lowers a contract graph, how the result is run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.ir.sizes import SizeRange
from torchstone.compiler.passes import Pipeline


class Kernel(Protocol):
    """A lowered graph that runs: torch tensors in (one for each graph argument), a tuple of the graph's outputs out.

    The outputs are fresh tensors that torch owns.
    A failed ``flat.check`` raises ``check_error`` of its message.
    """

    def __call__(self, tensors: Sequence[Any]) -> tuple[Any, ...]: ...


@dataclass(slots=True)
class Lowered:
    """What a lowering gives: the text of each of its stages, in order, and the way to a kernel.

    ``load`` compiles to something that runs (imports the runtime, and torch with it); it is called at most once.
    ``texts`` maps a stage (``linalg``, ``tosa``, ``tensorrt``) to a function that prints it, so that nothing is printed
    that nobody reads; after ``load`` a target may add later stages (``llvm``).
    """

    load: Callable[[], Kernel]
    texts: dict[str, Callable[[], str]] = field(default_factory=dict)


Settings: TypeAlias = Callable[[Mapping[str, SizeRange], Mapping[str, int], Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class Target:
    """A row of the target table.

    ``takes(op)`` returns None when the target lowers this operation (op name, operand dtypes, ranks, attributes), else
    the reason why not, for people: "flat.atan2: TOSA has no atan2". ``aten.*`` ops it takes are handed over unexpanded.
    ``lower(graph)`` turns a graph of taken ops into a ``Lowered``; it writes no ATen semantics.
    ``schedules`` says that its kernels run among library calls and run-time sizes, see ``lowering.partition``.
    ``pipelines`` are those that its code passes through, in order.
    ``prepare(graph)`` is what ``lower`` does first, from graph to graph: done earlier, parameters are prepared too.
    ``options`` are those of ``compile`` that are for this target alone.
    ``settings(sizes, example, options)`` returns what ``lower`` then takes as its second argument, for one program:
    ``sizes`` are its symbols, ``example`` tells what they are for its example.
    """

    name: str
    takes: Callable[[Operation], str | None]
    lower: Callable[..., Lowered]
    schedules: bool = False
    pipelines: tuple[Pipeline, ...] = ()
    prepare: Callable[[Graph], Graph] = lambda graph: graph
    options: tuple[str, ...] = ()
    settings: Settings | None = None
