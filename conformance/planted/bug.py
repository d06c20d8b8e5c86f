"""What a planted bug is, and the witness that shows it: a program and calls of it in which it differs from eager."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.conformance.planted.op_call import OpCall
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, map_leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.variants.backward import backward

Rule: TypeAlias = Callable[[OpCall], Any]
"""What an op gives in place of eager's result. One that raises leaves the op as it is."""

Compile: TypeAlias = Callable[[dict[Any, Any], Program, tuple[Tensor, ...]], Callable[..., Any]]
"""``compile`` of a backend whose defect is not in an op: given what the backend keeps, a program and its example."""


@dataclass(frozen=True, eq=False)
class Witness:
    """A program, and the arguments of one or more calls of what was compiled for those of the first.

    ``before`` is compiled and called before it, on the same backend. ``measure`` turns results into numbers for a
    program of random numbers: these have to differ, by more than 0.05. With ``one_memory`` the later calls' numbers are
    written to the tensors of the first.
    """

    program: Program
    calls: tuple[tuple[Tensor, ...], ...]
    before: Witness | None = None
    measure: Callable[[Any], float] | None = None
    one_memory: bool = False

    def again(self, *tensors: Tensor) -> Witness:
        """The witness with one more call."""
        return replace(self, calls=(*self.calls, tensors))

    def after(self, before: Witness) -> Witness:
        return replace(self, before=before)

    def measured(self, measure: Callable[[Any], float]) -> Witness:
        return replace(self, measure=measure)

    def in_one_memory(self) -> Witness:
        return replace(self, one_memory=True)

    def backward(self) -> Witness:
        """The witness of the program's gradients, for cotangents of 1, 2, 3, …"""
        case = backward(self.case())
        given = [t if name in self.program.inputs else rising(t) for name, t in case.inputs.items()]
        return Witness(case.program, (tuple(given),))

    def case(self) -> Case:
        """The first call as a case."""
        inputs = dict(zip(self.program.inputs, self.calls[0], strict=True))
        return Case(self.program, inputs, "witness", "witness", "float32")


def rising(like: Tensor) -> Tensor:
    """1, 2, 3, … in the shape and dtype of a tensor."""
    return torch.arange(1, like.numel() + 1).reshape(like.shape).to(like.dtype)


def ask(target: str, *args: Any, **kwargs: Any) -> Witness:
    """One call of a public function. Tensors become the inputs, one that is given twice one input."""
    return steps((target, *args), **kwargs)


def steps(*calls: tuple[Any, ...], **kwargs: Any) -> Witness:
    """Several calls, each a target with its arguments; ``Ref("y0")`` is the result of the first one.

    ``kwargs`` are the last call's. The last result is the program's.
    """
    inputs: list[Tensor] = []

    def leaf(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        places = [place for place, known in enumerate(inputs) if known is value]
        if not places:
            inputs.append(value)
        return Ref(f"x{places[0] if places else len(inputs) - 1}")

    made = []
    for place, (target, *args) in enumerate(calls):
        named = map_leaves(kwargs, leaf) if place == len(calls) - 1 else {}
        if isinstance(named, dict):
            made.append(Call(target, tuple(map_leaves(args, leaf)), _leaves(named, leaf), f"y{place}"))
    names = tuple(f"x{place}" for place in range(len(inputs)))
    return Witness(Program(names, tuple(made), Ref(f"y{len(made) - 1}")), (tuple(inputs),))


def _leaves(named: dict[str, Any], leaf: Callable[[Any], Any]) -> dict[str, Any]:
    return {name: leaf(value) for name, value in named.items()}


@dataclass(frozen=True, eq=False)
class PlantedBug:
    """A wrong backend: eager with one defect.

    ``group`` is its class. ``wrong`` says what is wrong, ``when`` under which condition, ``modelled_on`` what kind of
    real bug it is modelled on. ``ops`` are the ATen ops that ``rule`` changes; ``compile`` is there instead where the
    defect is in no op. ``witness()`` shows the defect, ``control()`` is a program on which the backend equals eager.
    """

    name: str
    group: str
    wrong: str
    when: str
    modelled_on: str
    ops: tuple[str, ...]
    rule: Rule | None
    compile: Compile | None
    witness: Callable[[], Witness]
    control: Callable[[], Witness]

    @property
    def held_out(self) -> bool:
        """Whether it is in the half that nobody looks at while the suite is tuned: by a hash of its name."""
        return hashlib.sha256(self.name.encode()).digest()[0] % 2 == 1


def bugs(group: str, *rows: Sequence[Any]) -> tuple[PlantedBug, ...]:
    """The bugs of a class, from rows: name, what is wrong, when, modelled on, ops by spaces, rule, witness, control.

    A row whose defect is in no op has the function that compiles in place of the ops and the rule.
    """
    made = []
    for name, wrong, when, modelled_on, *defect, witness, control in rows:
        ops, rule = defect if len(defect) == 2 else ("", None)
        compile = None if rule else defect[0]
        made.append(
            PlantedBug(name, group, wrong, when, modelled_on, tuple(ops.split()), rule, compile, witness, control)
        )
    return tuple(made)
