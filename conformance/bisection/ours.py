"""The stages of torchstone's own compiler. Each rung hands over to an interpreter at another place.

- ``capture``: the captured program, its ATen ops run by PyTorch's kernels
- ``expansions``: all of it expanded to the target's FlatIR, which the primitives' evaluators run
- ``kernels``: each primitive lowered to a kernel of its own, and called by the runtime
- ``together``: the target as it is: primitives share kernels, which passes and the code generator see as one

A part is tried in a fork, so that what it changes in this process stays there.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering import evaluator
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.steps import is_control
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.runtime.cpu.level import VARIABLE, unavailable
from torchstone.conformance.backends.adapters.builtin import Builtin
from torchstone.conformance.bisection.apart import lower_apart, lower_copying
from torchstone.conformance.bisection.rungs import Part, Rung
from torchstone.conformance.execution.verdict import Verdict

_FLAT = "torchstone.compiler.transforms.contract:FLAT"
_CPU = "torchstone.compiler.runtime.cpu.code:CPU"
_STABLEHLO = "torchstone.compiler.lowering.stablehlo.to_linalg:STABLEHLO_TO_LINALG"
_TO_LINALG = "torchstone.compiler.lowering.tosa.validate:TOSA_TO_LINALG"

# Passes that a program may do without, by where their pipeline is held.
_SPARED = {
    _FLAT: ("cse", "eliminate-dead-code"),
    _TO_LINALG: ("as-specified", "widen"),
    _STABLEHLO: ("widen",),
    _CPU: ("fuse", "fuse-rows", "outline-nests", "separate-results", "keep-outlined"),
}
_LEVELS = ("x86-64-v2", "x86-64-v3")

Change: TypeAlias = "Callable[[Target], Target]"


def rungs(backend: Any) -> Sequence[Rung]:
    """The rungs of one of torchstone's own backends, or of a mutant of one; none for any other."""
    if not isinstance(backend, Builtin):
        return ()

    def up_to(change: Change) -> Callable[[], Builtin]:
        return lambda: _changed(backend, change)

    def expansions(before: Verdict) -> list[Part]:
        alone = [Part(name, up_to(_expanding(name))) for name in _ran(before) if name.startswith("aten.")]
        return [*_passes(_FLAT, backend, _evaluated, shared=True), *alone]

    def kernels(before: Verdict) -> list[Part]:
        alone = [Part(name, up_to(_apart(name))) for name in _ran(before) if name.startswith("flat.")]
        runtime = Part("the runtime", up_to(_copying), shared=True, what="kernels that only copy")
        return [runtime, *alone, *to_code(_apart())]

    def together(before: Verdict) -> list[Part]:
        return to_code(None)

    def to_code(change: Change | None) -> list[Part]:
        """What becomes of a kernel's module: MLIR's passes, then code for this processor."""
        paths = {"linalg": (_CPU,), "tosa": (_TO_LINALG, _CPU), "stablehlo": (_STABLEHLO, _CPU)}.get(backend.target, ())
        passes = [part for path in paths for part in _passes(path, backend, change)]
        return [*passes, *(_levels(backend, change) if paths else ())]

    own = backend.target
    return (
        Rung("capture", "the captured program, run by PyTorch's kernels", up_to(_captured), made="aten"),
        Rung(
            "expansions",
            "FlatIR, run by the primitives' evaluators",
            up_to(_evaluated),
            expansions,
            given="contract",
            made="flat",
        ),
        Rung(
            "kernels",
            f"each primitive in a kernel of {own} of its own",
            up_to(_apart()),
            kernels,
            given="flat",
            made=own,
        ),
        Rung("together", f"kernels of {own} as they are", lambda: backend, together, given=own, made="llvm"),
    )


def _changed(backend: Builtin, change: Change | None) -> Builtin:
    if change is None:
        return backend
    out = copy.copy(backend)
    out.row = change(find_target(backend.target))
    out.uses_eager_kernels = True  # type: ignore[attr-defined]  # an interpreter's are PyTorch's
    return out


def _ran(verdict: Verdict) -> list[str]:
    """The ops that a verdict's evidence names, each once."""
    names = [name.partition(" ")[0] for ops in verdict.evidence.get("ran", {}).values() for name in ops]
    return list(dict.fromkeys(names))


def _captured(target: Target) -> Target:

    return Target(target.name, lambda op: None, evaluator.lower)


def _evaluated(target: Target) -> Target:

    return Target(target.name, target.takes, evaluator.lower, target.schedules)


def _expanding(name: str) -> Change:
    """All ops by PyTorch's kernels but those of a name, which are expanded."""

    def change(target: Target) -> Target:

        def takes(op: Operation) -> str | None:
            if op.name.startswith("flat."):
                return None if is_control(op) else target.takes(op)
            return target.takes(op) or "it is expanded" if op.name == name else None

        return Target(target.name, takes, evaluator.lower)

    return change


def _apart(name: str = "") -> Change:
    """Primitives in kernels of their own: those of a name, the others by their evaluators, or all of them."""

    def change(target: Target) -> Target:

        return Target(target.name, target.takes, lower_apart(target, name), target.schedules)

    return change


def _copying(target: Target) -> Target:
    """All by evaluators; a kernel copies each argument first."""

    return Target(target.name, target.takes, lower_copying(target), target.schedules)


def _passes(path: str, backend: Builtin, change: Change | None, *, shared: bool = False) -> list[Part]:
    def without(name: str) -> Callable[[], Builtin]:
        def made() -> Builtin:
            module, _, attribute = path.partition(":")
            holder = importlib.import_module(module)
            setattr(holder, attribute, getattr(holder, attribute).with_run(name, lambda program, context: program))
            return _changed(backend, change)

        return made

    return [Part(f"the pass {name}", without(name), without=True, shared=shared) for name in _SPARED[path]]


def _levels(backend: Builtin, change: Change | None) -> list[Part]:

    def held_to(level: str) -> Callable[[], Builtin]:
        def made() -> Builtin:
            os.environ[VARIABLE] = level
            return _changed(backend, change)

        return made

    return [Part(f"code beyond {level}", held_to(level), without=True) for level in _LEVELS if not unavailable(level)]
