"""PyTorch callable -> Executable: the stages of the compiler, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from inspect import signature
from typing import Any

from torchstone.compiler.capture.export import frontend as export
from torchstone.compiler.capture.own_example import take_example
from torchstone.compiler.capture.program import Captured
from torchstone.compiler.capture.symbolic.attempts import ExampleRefused, refused_by_example
from torchstone.compiler.capture.trace import frontend as dispatch
from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean, raise_bug
from torchstone.compiler.explain import explain
from torchstone.compiler.ir import Graph, Operation
from torchstone.compiler.ir.graph import walk
from torchstone.compiler.library import find_family
from torchstone.compiler.lowering import partition
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.target import Kernel, Lowered, Target
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.optimization import optimizing
from torchstone.compiler.passes import Pipeline, timed
from torchstone.compiler.prepared import Prepared
from torchstone.compiler.transforms.contract import CONTRACT, FLAT, to_contract, to_flat
from torchstone.compiler.transforms.expand import expand


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

    ``library_calls`` names the ATen ops that are calls into LibTorch, in the order they are made, ``compiled_ops`` the
    primitives that are not. ``specialized`` tells where the program looked at values and was specialized to them: a
    call with others raises GuardError.
    """

    def __init__(self, captured: Captured, kernel: Kernel, ir: Stages, target: str, flat: Graph) -> None:
        self.ir = ir
        self.target = target
        self.library_calls = tuple(op.name for op in walk(flat) if find_family(op) is not None)
        self.compiled_ops = tuple(op.name for op in walk(flat) if find_family(op) is None)
        self.specialized = tuple(captured.specialized)
        self._captured = captured
        self._kernel = kernel
        self._flat = flat

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on arguments that fit what was compiled.

        GuardError, before anything runs, names the argument that does not fit. RuntimeError is what eager would raise
        for these values (an integer division by zero). Unsupported is for values that eager takes.
        """
        return self._captured.call(self._kernel, args, kwargs)

    def run(self, leaves: Sequence[Any]) -> list[Any]:
        """Run on the leaves of the arguments' pytrees, in order; return the leaves of the result's."""
        tensors, sizes = self._captured.bind(leaves)
        return self._captured.finish(self._kernel(tensors), tensors, sizes)

    def expanded(self) -> str:
        """Return the text of the stage ``flat`` with the body of each composite in its place."""
        return str(expand(self._flat, _is_composite))

    def explain(self) -> str:
        """Return what became of each op, line by line of the program, as text."""
        return explain(self._captured.graph, self._flat)


def _is_composite(op: Operation) -> str | None:
    row = PRIMITIVES.get(op.name)
    return f"{op.name}: shown by its body" if row is not None and row.composite else None


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
    target: str | Target = "linalg",
    dynamic_shapes: Any = None,
    *,
    kwargs: Mapping[str, Any] | None = None,
    library_calls: bool = True,
    alias_results: bool = True,
    freeze: bool = False,
    optimize: bool = False,
    **options: Any,
) -> Executable:
    """Compile ``fn(*args, **kwargs)`` for a target, by name or itself, and return an executable.

    ``fn`` is a function or module, ``args`` and ``kwargs`` example arguments (tensors on CPU, any pytree of them, plain
    Python values). ``dynamic_shapes`` is what torch.export.export takes; without it every size is static. An int or
    float may be another at each call where the program only computes with it; ``specialized`` lists the others.
    Results take no part in autograd: that is what torch.compile is for.
    Without ``library_calls`` the executable is compiled code only, and what would need one is refused.
    With ``freeze``, parameters and buffers that the program only reads stay what they are now: what depends on them
    alone is computed once, and targets write them as constants. A call raises GuardError when one is another tensor or
    was written to; what ``tensor.data`` changes is not noticed.
    With ``optimize``, code for the CPU is optimized at once. Without, it is at first compiled in little time, unless it
    does much work, and is optimized once its calls have taken as long as that takes.
    A result that is an argument or a view of one is that argument or view, as in eager; without ``alias_results`` the
    compiled code computes it like any other.
    ``options`` are the target's own: ``tensorrt`` has ``profiles``, ``workspace``, ``timing_cache`` and
    ``engine_cache``.
    Unsupported says which op the target does not take, and ``stage`` where that was found.
    """
    row = target if isinstance(target, Target) else find_target(target)
    _check_options(row, options)
    with _stage("capture"), timed("capture", "capture"):
        if dynamic_shapes is None:
            captured = dispatch.capture(fn, args, kwargs)
        else:
            captured = export.capture(fn, args, dynamic_shapes, kwargs)

    def built(captured: Captured) -> Executable:
        captured.check_examples()
        if alias_results:
            captured.drop_aliased()
        else:
            captured.keep_aliased()
        with optimizing(at_once=optimize):
            exe = build(captured, row, library_calls=library_calls, freeze=freeze, options=options)
        take_example(captured, exe._kernel, exe._flat, args, kwargs)
        return exe

    while captured.otherwise is not None:
        try:
            return built(captured)
        except ExampleRefused as error:
            again = captured.without(error.names) if captured.without is not None else None
            captured = again or captured.otherwise
        except Exception as error:  # anything: the specialized program raises what is to be raised
            raise_bug(error)
            captured = captured.otherwise
    return built(captured)


def compile_many(
    programs: Iterable[tuple[Callable[..., Any], Sequence[Any]]], target: str | Target = "linalg", **options: Any
) -> list[Executable | Exception]:
    """Compile many programs, each a pair of function and arguments, and return for each its executable or its error.

    ``options`` are those of ``compile``. Their kernels become machine code together: for small ones that takes a
    fraction of the time.
    """
    from torchstone.compiler.runtime.cpu.code import together

    out: list[Executable | Exception] = []
    parts: list[int] = []
    with together() as codes:
        for fn, args in programs:
            try:
                out.append(compile(fn, args, target, **options))
            except Exception as error:  # anything: it is what the caller gets for this program
                out.append(error)
            parts.append(len(codes))
    for index, (start, end) in enumerate(zip([0, *parts], parts, strict=False)):
        error = next((code.error for code in codes[start:end] if code.error is not None), None)
        if error is not None and not isinstance(out[index], Exception):
            out[index] = error
    return out


def _check_options(target: Target, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in target.options:
            known = [
                *target.options,
                *(n for n, p in signature(compile).parameters.items() if p.kind is p.KEYWORD_ONLY),
            ]
            own = f"its own are {', '.join(target.options)}" if target.options else "it has none of its own"
            raise TorchstoneError(f'target {target.name}: no option "{name}"{did_you_mean(name, known)}; {own}')


def build(
    captured: Captured,
    target: Target,
    *,
    library_calls: bool = True,
    freeze: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Executable:
    """Take a captured program through contract, lowering and runtime."""
    if target.settings is not None:
        with _stage("lower"):
            settings = target.settings(captured.size_ranges(), captured.hints, options or {})
        lower = target.lower
        target = replace(target, lower=lambda graph: lower(graph, settings))
    with _stage("contract"):
        contract, guards = to_contract(captured.graph, target, captured.hints, library_calls=library_calls)
        flat, bounds = to_flat(contract, target, library_calls=library_calls)
    captured.guards.extend((*guards, *bounds))
    if (broken := refused_by_example(flat, captured.example)) is not None:
        raise ExampleRefused(broken)
    prepared = Prepared(captured, target.prepare(flat)) if freeze else None
    lowered = to_target(flat if prepared is None else prepared.graph, target)
    with _stage("compile"):
        kernel = lowered.load()
    if prepared is not None:
        flat, kernel = prepared.graph, prepared.kernel(kernel)
    printers = {"aten": captured.graph.__str__, "contract": contract.__str__, "flat": flat.__str__, **lowered.texts}
    return Executable(captured, kernel, Stages(printers), target.name, flat)


def to_target(flat: Graph, target: Target) -> Lowered:
    """Return the target's code for a graph of ops that it takes."""
    with _stage("lower"), timed("lower", f"to-{target.name}"):
        return partition.lower(flat, target.lower) if target.schedules else target.lower(flat)


def pipelines(target: Target) -> tuple[Pipeline, ...]:
    """Return the pipelines that a program passes through on its way to a target's code, in order."""
    return (CONTRACT, FLAT, *target.pipelines)
