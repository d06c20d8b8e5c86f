"""The stages of torchstone's own compiler. Each rung hands over to an interpreter at another place.

- ``capture``: the captured program, its ATen ops run by PyTorch's kernels
- ``expansions``: all of it expanded to the target's FlatIR, which the primitives' evaluators run
- ``lowering``: each primitive lowered to a kernel of its own
- ``together``: the target as it is: primitives share kernels, which passes and the code generator see as one

A part is tried in a fork, so that what it changes in this process stays there.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from torchstone.conformance.backends.adapters.builtin import Builtin
from torchstone.conformance.bisection.search import Part, Rung
from torchstone.conformance.execution.verdict import Verdict

if TYPE_CHECKING:
    from torchstone.compiler.ir import Operation
    from torchstone.compiler.lowering.target import Target

_FLAT = "torchstone.compiler.transforms.contract:FLAT"
_CPU = "torchstone.compiler.runtime.cpu.code:CPU"
_TO_LINALG = "torchstone.compiler.lowering.tosa.validate:TOSA_TO_LINALG"

# Passes that a program may do without: by the pipeline, where it is held and which.
_SPARED = {
    "expansions": ((_FLAT, ("cse", "eliminate-dead-code")),),
    "together": (
        (_TO_LINALG, ("as-specified", "widen")),
        (_CPU, ("fuse", "fuse-rows", "outline-nests", "separate-results", "keep-outlined")),
    ),
}
_LEVELS = ("x86-64-v2", "x86-64-v3")


def rungs(backend: Any) -> Sequence[Rung]:
    """The rungs of one of torchstone's own backends, or of a mutant of one; none for any other."""
    if not isinstance(backend, Builtin):
        return ()

    def up_to(change: Callable[[Target], Target]) -> Callable[[], Builtin]:
        return lambda: _changed(backend, change)

    def expansions(before: Verdict) -> list[Part]:
        alone = [Part(name, up_to(_expanding(name))) for name in _ran(before) if name.startswith("aten.")]
        return [*alone, *_passes("expansions", backend, _evaluated)]

    def lowerings(before: Verdict) -> list[Part]:
        return [Part(name, up_to(_apart(name))) for name in _ran(before) if name.startswith("flat.")]

    def together(before: Verdict) -> list[Part]:
        on_cpu = backend.target in ("linalg", "tosa")
        return [*_passes("together", backend, _as_it_is), *(_levels(backend) if on_cpu else ())]

    return (
        Rung("capture", "the captured program, run by PyTorch's kernels", up_to(_captured)),
        Rung("expansions", "FlatIR, run by the primitives' evaluators", up_to(_evaluated), expansions),
        Rung("lowering", f"each primitive in a kernel of {backend.target} of its own", up_to(_apart()), lowerings),
        Rung("together", f"kernels of {backend.target} as they are", lambda: backend, together),
    )


def _changed(backend: Builtin, change: Callable[[Target], Target]) -> Builtin:
    out = copy.copy(backend)
    out.change = change
    out.uses_eager_kernels = True  # type: ignore[attr-defined]  # an interpreter's are PyTorch's
    return out


def _ran(verdict: Verdict) -> list[str]:
    """The ops that a verdict's evidence names, each once."""
    names = [name.partition(" ")[0] for ops in verdict.evidence.get("ran", {}).values() for name in ops]
    return list(dict.fromkeys(names))


def _as_it_is(target: Target) -> Target:
    return target


def _captured(target: Target) -> Target:
    from torchstone.compiler.lowering import evaluator
    from torchstone.compiler.lowering.target import Target

    return Target(target.name, lambda op: None, evaluator.lower)


def _evaluated(target: Target) -> Target:
    from torchstone.compiler.lowering import evaluator
    from torchstone.compiler.lowering.target import Target

    return Target(target.name, target.takes, evaluator.lower, target.schedules)


def _expanding(name: str) -> Callable[[Target], Target]:
    """All ops by PyTorch's kernels but those of a name, which are expanded."""

    def change(target: Target) -> Target:
        from torchstone.compiler.lowering import evaluator
        from torchstone.compiler.lowering.steps import is_control
        from torchstone.compiler.lowering.target import Target

        def takes(op: Operation) -> str | None:
            if op.name.startswith("flat."):
                return None if is_control(op) else target.takes(op)
            return target.takes(op) or "it is expanded" if op.name == name else None

        return Target(target.name, takes, evaluator.lower)

    return change


def _apart(name: str = "") -> Callable[[Target], Target]:
    """Primitives in kernels of their own: those of a name, the others by their evaluators, or all of them."""

    def change(target: Target) -> Target:
        from torchstone.compiler.lowering.target import Target
        from torchstone.conformance.bisection.apart import lower_apart

        return Target(target.name, target.takes, lower_apart(target, name), target.schedules)

    return change


def _passes(stage: str, backend: Builtin, change: Callable[[Target], Target]) -> list[Part]:
    def without(path: str, name: str) -> Callable[[], Builtin]:
        def made() -> Builtin:
            module, _, attribute = path.partition(":")
            holder = importlib.import_module(module)
            setattr(holder, attribute, getattr(holder, attribute).with_run(name, lambda program, context: program))
            return backend if change is _as_it_is else _changed(backend, change)

        return made

    return [
        Part(f"the pass {name}", without(path, name), without=True)
        for path, names in _SPARED[stage]
        if path != _TO_LINALG or backend.target == "tosa"
        for name in names
    ]


def _levels(backend: Builtin) -> list[Part]:
    from torchstone.compiler.runtime.cpu.level import VARIABLE, unavailable

    def held_to(level: str) -> Callable[[], Builtin]:
        def made() -> Builtin:
            os.environ[VARIABLE] = level
            return backend

        return made

    return [Part(f"code beyond {level}", held_to(level), without=True) for level in _LEVELS if not unavailable(level)]
