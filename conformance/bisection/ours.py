"""The stages of torchstone's own compiler. Each rung hands over to an interpreter at another place.

- ``capture``: the captured program, its ATen ops run by PyTorch's kernels
- ``decompositions``: what PyTorch's decompositions make of it, run by them too
- ``expansions``: all of it expanded to the target's FlatIR, which the primitives' evaluators run
- ``schedule``: the same in the steps of a schedule, where the host has a part in it
- ``runtime``: the same, and kernels of the target copy the arguments
- ``lowering``: what the target's lowering wrote, run by somebody else: MLIR's own passes, or StableHLO's interpreter
- ``code``: the target as it is, with its passes on MLIR, and code for this processor

Of a case that is refused, the lowering is asked what it takes where its own turn comes: until then, and for all ops but
the one that is on trial, every basic primitive is taken.

A part is tried in a fork, so that what it changes in this process stays there.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import os
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from torchstone.compiler.ir import Operation
from torchstone.compiler.lowering import evaluator, partition
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.steps import is_control
from torchstone.compiler.lowering.target import Target
from torchstone.compiler.ops import PRIMITIVES
from torchstone.compiler.runtime.cpu import jit, kernel
from torchstone.compiler.runtime.cpu.level import VARIABLE, unavailable
from torchstone.compiler.transforms.bodies import BODIES
from torchstone.conformance.backends.adapters.builtin import Builtin
from torchstone.conformance.bisection.apart import lower_apart, lower_copying
from torchstone.conformance.bisection.plain import PlainKernel
from torchstone.conformance.bisection.rungs import Part, Rung
from torchstone.conformance.execution.verdict import Verdict

_FLAT = "torchstone.compiler.transforms.contract:FLAT"
_CPU = "torchstone.compiler.runtime.cpu.code:CPU"
_STABLEHLO = "torchstone.compiler.lowering.stablehlo.to_linalg:STABLEHLO_TO_LINALG"
_TOSA = "torchstone.compiler.lowering.tosa.validate:TOSA_TO_LINALG"

# Passes that a program may do without, by where their pipeline is held.
_SPARED = {
    _FLAT: ("cse", "eliminate-dead-code"),
    _TOSA: ("as-specified", "widen"),
    _STABLEHLO: ("widen",),
    _CPU: ("fuse", "fuse-rows", "outline-nests", "separate-results", "keep-outlined"),
}
_LEVELS = ("x86-64-v2", "x86-64-v3")
_TO_LINALG = {"linalg": (), "tosa": (_TOSA,), "stablehlo": (_STABLEHLO,)}
"""Targets whose code the CPU runtime makes, and the pipelines on the way to linalg."""
_INTERPRETER, _BY_INTERPRETER = "stablehlo-interpreter", ("stablehlo", "stablehlo-xla")

Change: TypeAlias = "Callable[[Target], Target]"


def rungs(backend: Any, refused: bool = False) -> Sequence[Rung]:
    """The rungs of one of torchstone's own backends, or of a mutant of one; none for any other.

    ``refused`` says that the backend refuses the case.
    """
    if not isinstance(backend, Builtin):
        return ()

    def up_to(*changes: Change, asked: str | None = None) -> Callable[[], Builtin]:
        """The backend, changed; with ``asked``, a refused case is refused for basic primitives of this name alone."""
        spared = (_taking_all_but(asked),) if refused and asked is not None else ()
        return lambda: _changed(backend, *spared, *changes)

    def alone(family: str, change: Callable[[str], Sequence[Change]], before: Verdict) -> list[Part]:
        """Each op of a family that ran: a change makes the compiler that has this stage for it and for no other."""
        return [Part(n, up_to(*change(n), asked=n)) for n in _ran(before) if n.startswith(family)]

    def left_out(path: str, *changes: Change, asked: str | None = None, shared: bool = False) -> list[Part]:
        names = _SPARED[path]
        return [Part(f"the pass {n}", up_to(*changes, _without(path, n), asked=asked), True, shared) for n in names]

    def decompositions(before: Verdict) -> list[Part]:
        return alone("aten.", lambda name: (_decomposed(name), _in_one), before)

    def expansions(before: Verdict) -> list[Part]:
        passes = left_out(_FLAT, _evaluated, _in_one, asked="", shared=True)
        return [*passes, *alone("aten.", lambda name: (_expanding(name),), before)]

    def lowering(before: Verdict) -> list[Part]:
        passes = [part for path in _TO_LINALG[own] for part in left_out(path, _plain)]
        return [*alone("flat.", lambda name: (_apart(name), _plain), before), *passes]

    def interpreted(before: Verdict) -> list[Part]:
        return alone("flat.", lambda name: (_as(_INTERPRETER), _apart(name)), before)

    def code(before: Verdict) -> list[Part]:
        primitives = alone("flat.", lambda name: (_apart(name),), before)
        if own not in _TO_LINALG:
            return primitives
        levels = [Part(f"code beyond {n}", up_to(_held_to(n)), True) for n in _LEVELS if not unavailable(n)]
        levels.append(Part("LLVM's optimizations", up_to(_quick), True))
        return [*primitives, *(part for path in (*_TO_LINALG[own], _CPU) for part in left_out(path)), *levels]

    own = backend.target
    copied = "kernels that copy the arguments, and evaluators"
    found = [
        Rung("capture", "the captured program, run by PyTorch's kernels", up_to(_captured), made="aten"),
        Rung("decompositions", "its decompositions, run by PyTorch's kernels", up_to(_decomposed(), _in_one),
             decompositions, given="aten", made="contract"),
        Rung("expansions", "FlatIR, run by the primitives' evaluators", up_to(_evaluated, _in_one, asked=""),
             expansions, given="contract", made="flat"),
        Rung("schedule", "the same in steps of a schedule", up_to(_evaluated, asked=""), given="flat", made="schedule"),
        Rung("runtime", copied, up_to(_copying, asked=""), given="flat", made=own),
    ]  # fmt: skip
    if own in _BY_INTERPRETER:
        what = "StableHLO, run by its reference interpreter"
        found.append(Rung("lowering", what, up_to(_as(_INTERPRETER)), interpreted, given="flat", made="stablehlo"))
    if own in _TO_LINALG:
        stage = "to linalg" if own in _BY_INTERPRETER else "lowering"
        what = "linalg, run by MLIR's own passes"
        found.append(Rung(stage, what, up_to(_plain), lowering, given="flat", made=own))
        return (*found, Rung("code", f"{own} as it is", lambda: backend, code, given=own, made="llvm"))
    return (*found, Rung(own, f"{own} as it is", lambda: backend, code, given="flat", made=own))


def _changed(backend: Builtin, *changes: Change) -> Builtin:
    """The backend with its target changed; some changes are of this process."""
    out = copy.copy(backend)
    out.row = find_target(backend.target)
    for change in changes:
        out.row = change(out.row)
    out.uses_eager_kernels = True  # type: ignore[attr-defined]  # an interpreter's are PyTorch's
    return out


def _ran(verdict: Verdict) -> list[str]:
    """The ops that a verdict's evidence names, each once."""
    names = [name.partition(" ")[0] for ops in verdict.evidence.get("ran", {}).values() for name in ops]
    return list(dict.fromkeys(names))


def _captured(target: Target) -> Target:
    return Target(target.name, lambda op: None, evaluator.lower)


def _decomposed(name: str = "") -> Change:
    """Ops of this name, or all, decomposed; nothing is expanded."""

    def change(target: Target) -> Target:
        for step in ("expand", "verify-contract"):
            _without(_FLAT, step)(target)

        def takes(op: Operation) -> str | None:
            return target.takes(op) if name in ("", op.name) else None

        return Target(target.name, takes, evaluator.lower, target.schedules)

    return change


def _taking_all_but(asked: str) -> Change:
    """The target takes every primitive that has no body, and is asked only for those of a name."""
    basic = PRIMITIVES.keys() - BODIES.keys()

    def change(target: Target) -> Target:

        def takes(op: Operation) -> str | None:
            return None if op.name in basic and op.name != asked else target.takes(op)

        return dataclasses.replace(target, takes=takes)

    return change


def _evaluated(target: Target) -> Target:
    return Target(target.name, target.takes, evaluator.lower, target.schedules)


def _in_one(target: Target) -> Target:
    """Nothing is scheduled: the lowering is given the whole graph."""
    partition.lower = lambda graph, lower_kernel: lower_kernel(graph)
    return target


def _expanding(name: str) -> Change:
    """All ops by PyTorch's kernels but those of a name, which are expanded."""

    def change(target: Target) -> Target:

        def takes(op: Operation) -> str | None:
            if op.name.startswith("flat."):
                return None if is_control(op) else target.takes(op)
            return target.takes(op) or "it is expanded" if op.name == name else None

        return Target(target.name, takes, evaluator.lower)

    return change


def _as(other: str) -> Change:
    """As another target runs it, which has the same lowering."""
    return lambda target: find_target(other)


def _apart(name: str) -> Change:
    """Primitives of a name in kernels of their own, the others by their evaluators."""
    return lambda target: Target(target.name, target.takes, lower_apart(target, name), target.schedules)


def _copying(target: Target) -> Target:
    """All by evaluators; a kernel copies each argument first."""
    return Target(target.name, target.takes, lower_copying(target), target.schedules)


def _plain(target: Target) -> Target:
    """The CPU runtime's kernels are made by MLIR's own passes."""
    kernel.CpuKernel = PlainKernel
    return target


def _without(path: str, name: str) -> Change:
    """A pass is left out of the pipeline that is held there."""

    def change(target: Target) -> Target:
        module, _, attribute = path.partition(":")
        holder = importlib.import_module(module)
        setattr(holder, attribute, getattr(holder, attribute).with_run(name, lambda program, context: program))
        return target

    return change


def _held_to(level: str) -> Change:
    def change(target: Target) -> Target:
        os.environ[VARIABLE] = level
        return target

    return change


def _quick(target: Target) -> Target:
    """Machine code as LLVM makes it without optimizing, however much work there is."""
    jit.opt_level = lambda work: jit.FAST_COMPILE
    return target
