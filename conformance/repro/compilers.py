"""How a script reaches a compiler: the way its users do, with nothing of torchstone's where there is such a way.

None of it needs the compiler's package: what a script says is known without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import ClassVar

from torchstone.conformance.backends.adapters.dynamo_backend import DynamoBackend
from torchstone.conformance.backends.registry import load
from torchstone.conformance.execution.later_calls import LaterCall
from torchstone.conformance.execution.verdict import NO_RESULT, Kind, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.fx import around_gradients, takes_gradients
from torchstone.conformance.repro import later_calls, source
from torchstone.conformance.repro.compiler_paths import OUTPUT_TYPES, PATHS, compiled_by_torch_mlir
from torchstone.conformance.repro.path_text import Needs, PathText, path_text
from torchstone.conformance.repro.results import ALL_TENSORS, Results
from torchstone.conformance.repro.source import python_source
from torchstone.conformance.variants.dynamic import Dims

BUILT_IN = ("linalg", "tosa", "stablehlo", "stablehlo-interpreter", "stablehlo-xla", "tensorrt")


@dataclass(frozen=True)
class Compiler:
    """A compiler that a script reaches by an expression: of the name of a program, of what gives its inputs, and of
    their dims that may be of any size."""

    name: str
    of: Callable[[str, str, Dims | None], str]
    imports: tuple[str, ...] = ()
    trains: bool = False
    """Whether it is given the forward part of a program that takes gradients, by the name ``forward``."""
    dims: Dims | None = None
    """Those of the program's inputs."""
    of_optimized: Callable[[str, str], str] | None = None
    """An expression like ``of``, of a compiler that can be asked to optimize at once."""
    flat: ClassVar = False
    """Whether results are a flat list, and the program writes to no argument."""
    program: ClassVar = "program"
    """What a script calls to run the program in eager."""

    def definitions(self, case: Case, results: Results | None) -> list[str]:
        """Return the definition of the program."""
        parts = around_gradients(case.program) if self.trains else None
        if parts is None:
            return source.function("program", case.program.inputs, source.body(case.program))
        leaves, forward, rest = parts
        names = [ref.name for ref in forward.outputs]
        results_ = f"{', '.join(names)}{',' * (len(names) == 1)} = " if names else ""
        called = f"{results_}forward({', '.join(forward.inputs)})"
        body = [*source.body(leaves)[:-1], called, *source.body(rest)]
        return [
            *source.function("forward", forward.inputs, source.body(forward)),
            *source.function("program", (*case.program.inputs, "forward=forward"), body),
        ]

    def more_definitions(self, later: list[LaterCall]) -> list[str]:
        """Return what else has to be defined where the compiled program is called several times."""
        return []

    def eager(self, args: str, results: Results | None) -> list[str]:
        """Return statements that compute ``expected``."""
        return [f"expected = program(*{args})"]

    def compile(self, args: str = "inputs()") -> str:
        """Return an expression for the compiled program."""
        return self.of(self.program, args, self.dims)

    def once(self, args: str, *, again: bool = False) -> tuple[list[str], list[str]]:
        """Return statements that compile the program and statements that call it, once or ``again``, to ``got``."""
        compiled = self.compile("inputs" if args == "inputs" else "inputs()")
        if again:
            return [f"compiled = {compiled}"], [f"got = compiled(*{args})"]
        return [], [f"got = {compiled}(*{args})"]

    def optimized(self) -> str:
        """Return an expression for the compiled program, optimized at once."""
        assert self.of_optimized is not None, f"{self.name} makes no optimized code"
        return self.of_optimized(self.program, "inputs()")

    def run_other(self) -> str:
        """Return a statement that compiles and runs the other program of ``later_calls``."""
        inputs = f"{later_calls.ANOTHER}_inputs()"
        return f"{self.of(later_calls.ANOTHER, inputs, None)}(*{inputs})"


@dataclass(frozen=True)
class Exported(Compiler):
    """A compiler of an exported program, by a path that the script carries: as statements, or as a function of them."""

    text: PathText = field(default_factory=lambda: PathText("", [], [], "", []))
    copies: bool = False
    """Whether inputs are in no row-major memory of their own."""
    flat: ClassVar = True
    program: ClassVar = "Module()"

    def definitions(self, case: Case, results: Results | None) -> list[str]:
        body = source.body(case.program) if results is None else results.body(case.program)
        return _module("Module", case.program.inputs, body)

    def more_definitions(self, later: list[LaterCall]) -> list[str]:
        lines = [*self.text.function(), "", ""]
        if self.copies or later:  # a later call may be one with other strides
            at = lines.index(f"    {self.text.call_header}") + 1
            lines[at:at] = [f"        args = {_COPIES.format('args')}"]
        if any(call.after_companion for call in later):
            lines += _module("AnotherModule", ["*args"], [f"return {later_calls.ANOTHER}(*args)"])
        return lines

    def eager(self, args: str, results: Results | None) -> list[str]:
        run = f"Module()(*{args})"
        return [f"expected = {ALL_TENSORS.format(run) if results is None else results.expected(run)}"]

    def once(self, args: str, *, again: bool = False) -> tuple[list[str], list[str]]:
        given, before = args, []
        if args != "inputs":
            given, before = "given", [f"given = {args}"]
        shapes = source.dynamic_shapes(self.dims or (), "DYNAMIC")
        setup, call = self.text.once("Module()", given, "copies" if self.copies else given, shapes)
        if self.copies and call:
            call = [f"copies = {_COPIES.format(given)}", *call]
        return [*before, *setup], call


@dataclass(frozen=True)
class OnCuda(Compiler):
    """A compiler whose programs run on a GPU: a function of the script takes inputs there and results back."""

    plainly: bool = True
    """Whether inputs are in row-major memory of their own, and written to by no program."""

    def definitions(self, case: Case, results: Results | None) -> list[str]:
        there = _COPIED if self.plainly else _COPIED_WITH_MEMORY
        return [*super().definitions(case, results), *_ON_CUDA[:4], *there, *_ON_CUDA[4:], "", ""]


_ON_CUDA = [
    "torch.backends.cudnn.allow_tf32 = False  # full float32",
    "",
    "",
    "def on_cuda(function):",
    "    return run",
]
_BACK = "        return tree_map_only(torch.Tensor, torch.Tensor.cpu, results)"
_COPIED = [
    "    def run(*args):",
    '        with torch.device("cuda"):',
    "            results = function(*[x.cuda() for x in args])",
    _BACK,
    "",
]
_COPIED_WITH_MEMORY = [
    "    def run(*args):  # on copies of the memory of all inputs, which is copied back",
    "        memory = {x.untyped_storage().data_ptr(): x.untyped_storage().cuda() for x in args}",
    "        there = []",
    "        for x in args:",
    "            place = memory[x.untyped_storage().data_ptr()], x.storage_offset(), x.shape, x.stride()",
    '            y = torch.empty(0, dtype=x.dtype, device="cuda").set_(*place)',
    "            y = y.conj() if x.is_conj() else y",
    "            there.append(torch._neg_view(y) if x.is_neg() else y)",
    '        with torch.device("cuda"):',
    "            results = function(*there)",
    "        for x in args:",
    "            x.untyped_storage().copy_(memory[x.untyped_storage().data_ptr()])",
    _BACK,
    "",
]

_COPIES = "[arg.clone(memory_format=torch.contiguous_format) for arg in {}]"


def _fails_to_lower(verdict: Verdict | None) -> bool:
    """Whether the compiler raises, or dies, before it has lowered the program."""
    return fails_before_run(verdict) and verdict is not None and verdict.stage in (Stage.CAPTURE, Stage.LOWER)


def fails_before_run(verdict: Verdict | None) -> bool:
    """Whether the compiler raises, or dies, before there is anything to call."""
    if verdict is None or verdict.outcome not in NO_RESULT:
        return False
    return verdict.stage in (Stage.CAPTURE, Stage.LOWER, Stage.COMPILE)


def _may_have_run(verdict: Verdict | None, prefix: str) -> bool:
    """Whether an op of this prefix ran, as far as the verdict tells."""
    ran = verdict.evidence.get("ran") if verdict is not None else None
    return not ran or any(name.startswith(prefix) for names in ran.values() for name in names)


def _module(name: str, parameters: Iterable[str], body: list[str]) -> list[str]:
    lines = [f"class {name}(torch.nn.Module):", f"    def forward({', '.join(['self', *parameters])}):"]
    return [*lines, *(f"        {line}" for line in body), "", ""]


def find_compiler(
    backend: str,
    case: Case,
    verdict: Verdict | None = None,
    results: Results | None = None,
    example: Case | None = None,
    dims: Dims | None = None,
) -> Compiler:
    """Return how a script reaches a backend. One that was tried here, with a verdict, may be imported to see what it
    is. Of a failure it is reached as far as the stage that fails. ``results`` are eager's, where it gives any.

    With ``dims`` these are free when the program is compiled, for the ``example`` if that has other sizes."""
    if backend == "eager":
        return Compiler(backend, lambda program, args, dims: program)
    if backend == "inductor":
        return _by_torch_compile(backend, case, "", (), dims)
    # Results that are copied back share no memory.
    if backend in ("eager+cuda", "inductor+cuda") and (verdict is None or verdict.kind != Kind.ALIASING):
        return _on_cuda(backend, case, verdict, results)
    name = python_source(backend)
    if backend in BUILT_IN:

        def built_in(program: str, args: str, dims: Dims | None) -> str:
            more = f", dynamic_shapes={source.dynamic_shapes(dims)}" if dims else ""
            return f"torchstone.compile({program}, {args}, target={name}{more})"

        def optimized(program: str, args: str) -> str:
            return f"torchstone.compile({program}, {args}, target={name}, optimize=True)"

        return Compiler(backend, built_in, ("import torchstone",), dims=dims, of_optimized=optimized)
    if is_flat(backend):
        return _by_export(backend, case, verdict, results, example or case, dims)
    module, colon, attribute = backend.partition(":")
    if (
        verdict is not None
        and colon
        and all(part.isidentifier() for part in [*module.split("."), attribute])
        and _is_dynamos(backend)
    ):
        return _by_torch_compile(backend, case, f", backend={module}.{attribute}", (f"import {module}",), dims)

    def loaded(program: str, args: str, dims: Dims | None) -> str:
        method, more = ("compile_dynamic", f", {python_source(dims)}") if dims else ("compile", "")
        return f"load({name}).{method}({program}, {args}{more})"

    def loaded_optimized(program: str, args: str) -> str:
        return f"load({name}).compile_optimized({program}, {args})"

    imports = ("from torchstone.conformance.backends import load",)
    return Compiler(backend, loaded, imports, dims=dims, of_optimized=loaded_optimized)


def _on_cuda(backend: str, case: Case, verdict: Verdict | None, results: Results | None) -> Compiler:
    inner = find_compiler(backend.partition("+")[0], case, verdict, results)
    return OnCuda(
        backend,
        lambda program, args, dims: f"on_cuda({inner.of(program, args, dims)})",
        (*inner.imports, "from torch.utils._pytree import tree_map_only"),
        inner.trains,
        plainly=(
            source.builds_plainly(case)
            and not later_calls.calls_to_failure(case, verdict)
            and results is not None
            and not results.written
        ),
    )


def is_flat(backend: str) -> bool:
    """Whether a script has a backend's results as a flat list."""
    return backend in PATHS or backend in OUTPUT_TYPES


def _by_export(
    backend: str, case: Case, verdict: Verdict | None, results: Results | None, example: Case, dims: Dims | None
) -> Exported:
    """A compiler that a path of ``compiler_paths`` reaches."""
    path = PATHS.get(backend, compiled_by_torch_mlir)
    dims = dims if "dynamic_shapes" in inspect.signature(path).parameters else None
    needs = Needs.of(
        [tensor.dtype for tensor in case.args],
        None if results is None else results.dtypes,
        any_size=bool(dims),
        lowering_alone=_fails_to_lower(verdict),
        output_type=OUTPUT_TYPES.get(backend, ""),
        tool=OUTPUT_TYPES.get(backend) == "linalg-on-tensors" and _may_have_run(verdict, "tm_tensor."),
    )
    text = path_text(path, needs)
    modules = {"Module()": "Module()", later_calls.ANOTHER: "AnotherModule()"}

    def exported(program: str, args: str, dims: Dims | None) -> str:
        more = f", {source.dynamic_shapes(dims, 'DYNAMIC')}" if dims else ""
        return f"{path.__name__}({modules[program]}, {args}{more})"

    plainly = source.builds_plainly(case) and source.builds_plainly(example)
    return Exported(backend, exported, tuple(text.imports), dims=dims, text=text, copies=not plainly)


def _by_torch_compile(backend: str, case: Case, more: str, imports: tuple[str, ...], dims: Dims | None) -> Compiler:
    """A compiler that ``torch.compile`` reaches. TorchDynamo takes no call of autograd's: forward alone is compiled.

    As one graph, as the suite asks: what splits it would leave the sizes that depend on values to eager.
    """
    trains = takes_gradients(case.program)
    more = f", fullgraph=True{more}"

    def compiled(program: str, args: str, dims: Dims | None) -> str:
        options = f"{more}, dynamic=True" if dims else more  # every size: it has no way of freeing some
        if trains and program == "program":
            return f"functools.partial(program, forward=torch.compile(forward{options}))"
        return f"torch.compile({program}{options})"

    return Compiler(backend, compiled, imports, trains, dims)


def _is_dynamos(backend: str) -> bool:
    """Whether a backend is a function that ``torch.compile`` takes for one."""
    try:
        return isinstance(load(backend), DynamoBackend)
    except Exception:  # anything: it is the user's own, and may have run in another environment
        return False
