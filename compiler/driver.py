"""PyTorch callable -> Executable: the stages of the compiler, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torchstone.compiler.contract.decompose import decompose
from torchstone.compiler.contract.expand import eliminate_dead_code, expand
from torchstone.compiler.contract.expansions import EXPANSIONS
from torchstone.compiler.contract.share import share
from torchstone.compiler.contract.verify import verify
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.explain import explain
from torchstone.compiler.frontends import dispatch, export
from torchstone.compiler.frontends.captured import Captured, Guard
from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.ir.verifier import verify_graph
from torchstone.compiler.library import find_family
from torchstone.compiler.lowering import schedule
from torchstone.compiler.lowering.target import Kernel, Lowered, Target
from torchstone.compiler.ops.evaluate import bind_symbols
from torchstone.compiler.targets import find_target


class Stages(Mapping[str, str]):
    """The text of every stage, printed when read: ``aten``, ``contract``, ``flat``, then the target's own."""

    def __init__(self, printers: dict[str, Callable[[], str]]) -> None:
        self._printers = printers

    def __getitem__(self, stage: str) -> str:
        return self._printers[stage]()

    def __iter__(self) -> Iterator[str]:
        return iter(self._printers)

    def __len__(self) -> int:
        return len(self._printers)


class Executable:
    """A compiled program. Call it like the original; ``ir[stage]`` is the text of a stage.

    ``library_calls`` names the ATen ops that are calls into LibTorch, in the order they are made.
    """

    def __init__(self, captured: Captured, kernel: Kernel, ir: Stages, target: str, flat: Graph) -> None:
        self.ir = ir
        self.target = target
        self.library_calls = tuple(op.name for op in flat.ops if find_family(op) is not None)
        self._captured = captured
        self._kernel = kernel
        self._flat = flat

    def __call__(self, *args: Any) -> Any:
        """Run on arguments that fit what was compiled.

        GuardError, before anything runs, names the argument that does not fit. RuntimeError is what eager would raise
        for these values (an integer division by zero).
        """
        tensors = self._captured.bind(args)
        return self._captured.unflatten(self._kernel(tensors), tensors)

    def explain(self) -> str:
        """Return what became of each op, line by line of the program, as text."""
        return explain(self._captured.graph, self._flat)


@contextmanager
def _stage(name: str) -> Iterator[None]:
    """Say in which stage an error of the compiler came up, unless it knows already."""
    try:
        yield
    except TorchstoneError as error:
        error.__dict__.setdefault("stage", name)
        raise


def compile(
    fn: Callable[..., Any],
    args: Sequence[Any],
    target: str = "linalg",
    dynamic_shapes: Any = None,
    *,
    library_calls: bool = True,
) -> Executable:
    """Compile ``fn(*args)`` for a target and return an executable.

    ``fn`` is a function or module, ``args`` example arguments (tensors on CPU, any pytree of them, plain Python values,
    which are specialized). ``dynamic_shapes`` is what torch.export.export takes; without it every size is static.
    Without ``library_calls`` the executable is compiled code only, and what would need one is refused.
    Unsupported says which op the target does not take, and ``stage`` where that was found.
    """
    row = find_target(target)
    with _stage("capture"):
        captured = dispatch.capture(fn, args) if dynamic_shapes is None else export.capture(fn, args, dynamic_shapes)
    return build(captured, row, library_calls=library_calls)


def build(captured: Captured, target: Target, *, library_calls: bool = True) -> Executable:
    """Take a captured program through contract, lowering and runtime."""
    tensors = [leaf for leaf in captured.leaves if hasattr(leaf, "shape")]
    hints = bind_symbols(captured.graph, [*tensors, *captured.captures])
    with _stage("contract"):
        contract, guards = to_contract(captured.graph, target, hints, library_calls=library_calls)
        flat = to_flat(contract, target, library_calls=library_calls)
    captured.guards.extend(guards)
    lowered = to_target(flat, target)
    with _stage("compile"):
        kernel = lowered.load()
    printers = {"aten": captured.graph.__str__, "contract": contract.__str__, "flat": flat.__str__, **lowered.texts}
    return Executable(captured, kernel, Stages(printers), target.name, flat)


def to_contract(
    graph: Graph, target: Target, hints: Mapping[str, int], *, library_calls: bool = True
) -> tuple[Graph, list[Guard]]:
    """Return the graph of core ATen ops, and what decomposing assumed of its sizes; ``hints`` are example sizes."""

    def keep(op: Operation) -> bool:
        return op.name in EXPANSIONS or _is_call(op, target, library_calls) or target.takes(op) is None

    verify_graph(graph)
    contract, guards = decompose(graph, keep, hints)
    contract = eliminate_dead_code(contract)
    verify_graph(contract)
    return contract, guards


def to_flat(contract: Graph, target: Target, *, library_calls: bool = True) -> Graph:
    """Return the graph of ops that the target takes."""

    def takes(op: Operation) -> str | None:
        refusal, family = target.takes(op), find_family(op)
        if refusal is None or family is None:
            return refusal
        why = "library calls are off" if target.schedules else f"the target {target.name} makes none"
        return f"{op.name} is a call into LibTorch ({family.reason}), and {why}"

    def calls(op: Operation) -> bool:
        return _is_call(op, target, library_calls)

    flat = eliminate_dead_code(share(expand(contract, takes, calls)))
    verify(flat, lambda op: None if calls(op) else takes(op))
    return flat


def _is_call(op: Operation, target: Target, library_calls: bool) -> bool:
    return target.schedules and library_calls and find_family(op) is not None


def to_target(flat: Graph, target: Target) -> Lowered:
    """Return the target's code for a graph of ops that it takes."""
    with _stage("lower"):
        return schedule.lower(flat, target.lower) if target.schedules else target.lower(flat)
