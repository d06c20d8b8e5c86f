"""A program with the Python objects that it reaches, and the ways to run it that leave no trace."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import torch

from torchstone.compiler._torch import pytrees as pytree
from torchstone.compiler._torch.control_flow import called_directly
from torchstone.compiler._torch.functorch import is_wrapped, transforms_kept
from torchstone.compiler._torch.tensors import flip_bits_of, mark_parameter
from torchstone.compiler.capture.memory.foreign_memory import memory_apart, written
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.ambient import ambient_kept
from torchstone.compiler.capture.state.blame import Effectful, line_of_change
from torchstone.compiler.capture.state.blind import blind, with_blinds
from torchstone.compiler.capture.state.effects import Containers, Effect, check_attributes
from torchstone.compiler.capture.state.heap import Heap, Slot
from torchstone.compiler.capture.state.standins import stand_in
from torchstone.compiler.capture.symbolic.run_time_sizes import quiet
from torchstone.compiler.capture.tensor_guards import MODES, Asking, Facts, Owner
from torchstone.compiler.capture.trace.generator_state import generator_kept
from torchstone.compiler.capture.trace.value_leaks import NoEscape, no_back_doors
from torchstone.compiler.diagnostics import Unsupported

# Arguments that may be run-time numbers. A bool is what programs branch on.
SCALARS = {int: torch.int64, float: torch.float64}


class Reached:
    """A program with the Python objects that it reaches; ``held`` are places in them whose numbers are arguments."""

    def __init__(self, fn: Any, leaves: Sequence[Any]) -> None:
        self.fn = fn
        self.held: list[Slot] = []
        self.rehearsed = False
        self.foreign: list[torch.Tensor] = []  # what the program has made of other memory
        self.blind: tuple[int, ...] = ()
        given = [leaf if not isinstance(leaf, torch.Tensor) or has_attributes(leaf) else None for leaf in leaves]
        name = type(fn).__name__ if isinstance(fn, torch.nn.Module) else getattr(fn, "__name__", type(fn).__name__)
        self.heap = Heap([(name, fn), *((f"argument {i}", leaf) for i, leaf in enumerate(given))])
        self._arguments = {id(leaf) for leaf in leaves}
        self._counts: list[Slot] = []

    def tensors(self) -> list[torch.Tensor]:
        """Return the tensors in the objects that are no arguments, each once."""
        found = [self.heap.tensor(slots[0]) for slots in self.heap.tensors.values()]
        return [t for t in found if id(t) not in self._arguments and _is_plain(t)]

    def sources(self, tensor: torch.Tensor) -> list[Slot]:
        """Return the places that hold a tensor and that the program may read it from.

        torch.export may hold another tensor that is in the same memory.
        """
        slots = self.heap.tensors.get(id(tensor))
        if slots is None:
            same = [held for held in self.heap.tensors.values() if _one_memory(self.heap.tensor(held[0]), tensor)]
            slots = same[0] if len(same) == 1 else []
        return [slot for slot in slots if slot.node not in self.blind]

    def held_tensor(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Return a tensor if it is one in the objects."""
        return tensor if id(tensor) in self.heap.tensors else None

    def facts(self, asking: Asking, leaves: Sequence[Any]) -> Facts:
        """Return what the program asked of its tensors, and what it may have asked where no mode sees it."""
        first = {id(leaf): i for i, leaf in reversed([*enumerate(leaves)]) if isinstance(leaf, torch.Tensor)}
        given: list[Owner] = sorted(first.values())
        held = (self.heap.tensor(slots[0]) for slots in self.heap.tensors.values())
        given += [t for t in held if self.sources(t)]
        identity = self.heap.compares_identity
        if identity and any(isinstance(t, torch.Tensor) and id(t) in first for t in given):
            why = "an argument is a tensor that the program holds too, and the program asks whether tensors are one"
            raise Unsupported(why, stage="capture")

        def place(owner: Owner) -> Any:
            return owner if isinstance(owner, int) else tuple(self.sources(owner)) or owner

        return asking.found(
            given,
            place,
            [mode for mode in MODES if self.heap.mentions((mode,))],
            classes=self.heap.mentions(("Parameter",)),
            identity=identity,
            missed=self.heap.names_missed,
        )

    def check_no_attributes(self) -> None:
        """Unsupported where the program names an attribute that somebody has set on a tensor."""
        for node in self.heap.nodes:
            named = [key for key in node.saved if self.heap.mentions((str(key),))] if node.kind is kinds.TENSOR else []
            if named:
                why = f"{node.label}.{named[0]}, an attribute of a tensor, under dynamic shapes"
                raise Unsupported(why, stage="capture")

    def mark_parameters(self, originals: Sequence[Any], stand_ins: Sequence[Any]) -> None:
        """Let what stands for a parameter be one for ``isinstance``, where the program may ask."""
        if self.heap.mentions(("Parameter",)):
            for original, other in zip(originals, stand_ins, strict=True):
                if isinstance(original, torch.nn.Parameter) and isinstance(other, torch.Tensor):
                    mark_parameter(other)

    def blinds(self) -> dict[int, Any]:
        """Return containers that tell nothing, for those that the program is thought only to add to."""
        return {number: blind(type(self.heap.nodes[number].obj)) for number in self.blind}

    def adding(self, effects: Sequence[Effect]) -> Reached | None:
        """Return the program with such containers in the place of those that only grew, None where there are none."""
        within = {node.place.node for node in self.heap.nodes if node.place is not None}
        grown = [e.target.number for e in effects if e.grew and e.target.number not in within]
        if not grown or self.heap.looks_at_classes:
            return None
        out = copy.copy(self)
        out.blind = tuple(grown)
        return out

    def note(self, effects: Sequence[Effect]) -> None:
        """Remember which numbers the program replaces by others."""
        self._counts = [
            Slot(effect.target.number, key)
            for effect in effects
            if not effect.target.argument
            for key in effect.new
            if type(self.heap.nodes[effect.target.number].saved.get(key)) in SCALARS
        ]

    def counting(self) -> Reached:
        """Return the program with the numbers that it replaced, as it was last captured, for arguments."""
        out = copy.copy(self)
        out.held = list(self._counts)
        return out

    def counted(self) -> list[Any]:
        """Return these numbers."""
        return [self.heap.nodes[slot.node].saved[slot.key] for slot in self._counts]


def has_attributes(tensor: torch.Tensor) -> bool:
    """Say whether somebody has set an attribute on a tensor."""
    return bool(kinds.TENSOR.entries(tensor, None))


def _one_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    if not (_is_plain(one) and _is_plain(other)) or one.dtype is not other.dtype or not other.numel():
        return False
    return one.data_ptr() == other.data_ptr() and one.shape == other.shape and one.stride() == other.stride()


def _is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is one that a graph may have for an argument."""
    kind = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_quantized and not tensor.is_nested
    return kind and tensor.is_cpu and tensor.layout is torch.strided and not is_wrapped(tensor)


def line_of(error: Effectful, fn: Reached, leaves: list[Any], in_spec: pytree.TreeSpec) -> str:
    """Quote the user's line that does to an object what the program is refused for."""
    containers: list[Containers] = []

    def changed() -> bool:
        if error.changed is not None:
            return error.changed()
        found = containers[0].changed() if error.argument else fn.heap.changed()
        return any(number == error.number for number, *_ in found)

    where = ""
    with generator_kept(), transforms_kept(), contextlib.suppress(Effectful), ambient_kept(fn.heap):
        where = line_of_change(lambda: rehearse(fn, leaves, in_spec, containers), changed)
    return where


def rehearse(
    fn: Reached, leaves: list[Any], in_spec: pytree.TreeSpec, containers: list[Containers] | None = None
) -> None:
    """Run a program that writes as eager does, on clones, so that what eager refuses is raised.

    Functionalization writes to nothing, and so has no objection to an ``out=`` of another dtype or one that overlaps an
    operand.
    """
    clones = clone_tensors(leaves[: in_spec.num_leaves], tracked=True)
    args, kwargs, _ = with_blinds(*pytree.tree_unflatten(clones, in_spec))
    state = fn.tensors()
    others = {id(t): o for t, o in zip(state, clone_tensors(state, tracked=True), strict=True)}
    if containers is not None:
        containers.append(Containers(args, kwargs))
        containers[0].remember()
    given = {id(leaf): clone for leaf, clone in zip(leaves, clones, strict=False) if isinstance(leaf, torch.Tensor)}
    made: list[torch.Tensor] = fn.foreign
    fn.mark_parameters([*leaves[: in_spec.num_leaves], *state], [*clones, *others.values()])
    watched = fn.heap.standing_in(others, {}, None, given)
    with called_directly(), quiet(), NoEscape(), no_back_doors(), watched, memory_apart(made):
        out = fn.fn(*args, **kwargs)
        fn.rehearsed = True
        check_attributes(fn.heap, pytree.tree_leaves(out))
        if written(made):
            why = "the program writes to a tensor in the memory of an array, which no graph can do"
            raise Effectful(why, changed=lambda: written(made))


def clone_tensors(leaves: Sequence[Any], *, tracked: bool) -> list[Any]:
    """Clone the tensors, one clone for each: the program must not write to its caller's while it is captured.

    Unless clones are ``tracked``, autograd knows nothing of them: where they are functionalized, their wrappers are.
    """
    clones: dict[int, torch.Tensor] = {}
    out: list[Any] = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in clones:
                clones[id(leaf)] = _clone_one(leaf).requires_grad_(tracked and leaf.requires_grad)
            leaf = clones[id(leaf)]
        out.append(stand_in(leaf))
    return out


def _clone_one(tensor: torch.Tensor) -> torch.Tensor:
    """Clone with the same sizes, strides, offset and storage around it: a program may look at all of them."""
    plain = tensor.detach()
    if plain.layout is not torch.strided or (plain.is_contiguous() and not plain.storage_offset()):
        return plain.clone()
    storage = plain.untyped_storage().clone()
    copy = torch.empty(0, dtype=plain.dtype).set_(storage, plain.storage_offset(), plain.shape, plain.stride())
    return flip_bits_of(copy, plain)
