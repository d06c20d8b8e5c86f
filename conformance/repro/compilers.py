"""How a script reaches a compiler: the way its users do, with nothing of torchstone's where there is such a way.

None of it needs the compiler's package: what a script says is known without.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torchstone.conformance.backends.adapters.dynamo_backend import DynamoBackend
from torchstone.conformance.backends.registry import load
from torchstone.conformance.execution.later_calls import LaterCall
from torchstone.conformance.execution.verdict import FAILURES, Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.fx import takes_gradients
from torchstone.conformance.repro import later_calls
from torchstone.conformance.repro.compiler_paths import OUTPUT_TYPES, PATHS, compiled_by_torch_mlir
from torchstone.conformance.repro.source import python_source

_EXPORTED = "torch.export.export({}(), {}(), strict=False)"
BUILT_IN = ("linalg", "tosa", "stablehlo", "stablehlo-interpreter", "stablehlo-xla", "tensorrt")


@dataclass(frozen=True)
class Compiler:
    """A compiler that a script reaches by an expression, of the names of a program and of its inputs' function."""

    name: str
    of: Callable[[str, str], str]
    imports: tuple[str, ...] = ()
    trains: bool = False
    """Whether it is given the forward part of a program that takes gradients, by the name ``forward``."""
    flat: ClassVar = False
    lowers_only: ClassVar = False
    """Whether its expression is what the compiler lowers to, which is not called."""

    def definitions(self, later: list[LaterCall]) -> list[str]:
        """Return what has to be defined before."""
        return []

    def eager(self, args: str) -> list[str]:
        """Return statements that compute ``expected``."""
        return [f"expected = program(*{args})"]

    def compile(self) -> str:
        """Return an expression for the compiled program."""
        return self.of("program", "inputs")

    def run_other(self) -> str:
        """Return a statement that compiles and runs the other program of ``later_calls``."""
        inputs = f"{later_calls.ANOTHER}_inputs"
        return f"{self.of(later_calls.ANOTHER, inputs)}(*{inputs}())"


@dataclass(frozen=True)
class Exported(Compiler):
    """A compiler of an exported program, by a function whose source the script carries.

    Results are a flat list; arguments that the program writes to are among them.
    """

    path: Callable[..., Any] = print
    writes: bool = False
    flat: ClassVar = True

    def definitions(self, later: list[LaterCall]) -> list[str]:
        lines = [*inspect.getsource(self.path).rstrip().splitlines(), "", ""]
        if any(call.after_companion for call in later):
            lines += _module("AnotherModule", [f"return {later_calls.ANOTHER}(*args)"])
        if not self.writes:
            return [*lines, *_module("Module", ["return program(*args)"])]
        body = [
            "args = [arg.clone() for arg in args]",
            "results = tree_leaves(program(*args))",
            "return [leaf for leaf in results if not any(leaf is arg for arg in args)], args",
        ]
        return [*lines, *_module("Module", body)]

    def eager(self, args: str) -> list[str]:
        run = f"{'Module()' if self.writes else 'program'}(*{args})"
        return [f"expected = [leaf for leaf in tree_leaves({run}) if isinstance(leaf, torch.Tensor)]"]


@dataclass(frozen=True)
class Lowered(Compiler):
    """What torch-mlir lowers an exported program to: all that a failure takes to lower it."""

    lowers_only: ClassVar = True

    def definitions(self, later: list[LaterCall]) -> list[str]:
        return _module("Module", ["return program(*args)"])


def _by_export(path: Callable[..., Any], more: str = "") -> Callable[[str, str], str]:
    modules = {"program": "Module", later_calls.ANOTHER: "AnotherModule"}
    return lambda program, inputs: f"{path.__name__}({_EXPORTED.format(modules[program], inputs)}{more})"


def _fails_to_lower(verdict: Verdict | None) -> bool:
    """Whether the compiler raises, or dies, before it has lowered the program."""
    if verdict is None or verdict.outcome not in FAILURES or verdict.outcome is Outcome.MISMATCH:
        return False
    return verdict.stage in (Stage.CAPTURE, Stage.LOWER)


def _module(name: str, body: list[str]) -> list[str]:
    lines = [f"class {name}(torch.nn.Module):", "    def forward(self, *args):"]
    return [*lines, *(f"        {line}" for line in body), "", ""]


def find_compiler(backend: str, case: Case, verdict: Verdict | None = None) -> Compiler:
    """Return how a script reaches a backend. One that was tried here, with a verdict, may be imported to see what it
    is. Of a failure it is reached as far as the stage that fails."""
    if backend == "eager":
        return Compiler(backend, lambda program, inputs: program)
    if backend == "inductor":
        return _by_torch_compile(backend, case, "")
    name = python_source(backend)
    if backend in BUILT_IN:
        call = "torchstone.compile({}, {}(), target={})"
        return Compiler(backend, lambda program, inputs: call.format(program, inputs, name), ("import torchstone",))
    if backend in PATHS:
        return Exported(backend, _by_export(PATHS[backend]), path=PATHS[backend], writes=writes(case))
    if backend in OUTPUT_TYPES and _fails_to_lower(verdict):
        call = f'fx.export_and_import({_EXPORTED.format("Module", "{}")}, output_type="{OUTPUT_TYPES[backend]}")'
        return Lowered(backend, lambda program, inputs: call.format(inputs), ("from torch_mlir import fx",))
    if backend in OUTPUT_TYPES:
        path = compiled_by_torch_mlir
        return Exported(backend, _by_export(path, f', "{OUTPUT_TYPES[backend]}"'), path=path, writes=writes(case))
    module, colon, attribute = backend.partition(":")
    if (
        verdict is not None
        and colon
        and all(part.isidentifier() for part in [*module.split("."), attribute])
        and _is_dynamos(backend)
    ):
        return _by_torch_compile(backend, case, f", backend={module}.{attribute}", (f"import {module}",))
    needed = "from torchstone.conformance.backends import load"
    return Compiler(backend, lambda program, inputs: f"load({name}).compile({program}, {inputs}())", (needed,))


def _by_torch_compile(backend: str, case: Case, more: str, imports: tuple[str, ...] = ()) -> Compiler:
    """A compiler that ``torch.compile`` reaches. TorchDynamo takes no call of autograd's: forward alone is compiled."""
    trains = takes_gradients(case.program)

    def compiled(program: str, inputs: str) -> str:
        if trains and program == "program":
            return f"functools.partial(program, forward=torch.compile(forward{more}))"
        return f"torch.compile({program}{more})"

    return Compiler(backend, compiled, imports, trains)


def _is_dynamos(backend: str) -> bool:
    """Whether a backend is a function that ``torch.compile`` takes for one."""
    try:
        return isinstance(load(backend), DynamoBackend)
    except Exception:  # anything: it is the user's own, and may have run in another environment
        return False


def writes(case: Case) -> bool:
    """Whether the program may write to its arguments: in place, to an output, to running statistics."""
    return any(
        call.target.endswith(("_", "batch_norm", "instance_norm")) or "out" in call.kwargs
        for call in case.program.calls
    )
