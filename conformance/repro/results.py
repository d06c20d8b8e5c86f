"""What eager gives for a case, and how a script names it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key, version
from torchstone.conformance.execution.undefined_behavior import SEED
from torchstone.conformance.oracle.equality import same_bits
from torchstone.conformance.oracle.pytree import paths
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Program
from torchstone.conformance.repro import source
from torchstone.conformance.repro.place import Place
from torchstone.conformance.repro.source import python_source

_SILENT = ("batch_norm", "instance_norm")
"""Functions that may write to their arguments, running statistics, and whose schemas do not say so."""
ALL_TENSORS = "[leaf for leaf in tree_leaves({}) if isinstance(leaf, torch.Tensor)]"


@dataclass(frozen=True)
class Results:
    """What eager gives for a case, and how a script gets at it: ``flat``, a sequence of all tensors, or as it is.

    ``written`` are the numbers of the inputs that the program writes to. A flat script's program writes to copies of
    these, which come behind its results.
    """

    outputs: Any
    inputs: tuple[Tensor, ...]
    draws: bool
    written: tuple[int, ...]
    refs: list[Ref]
    flat: bool = False

    @classmethod
    def of(cls, case: Case, *, flat: bool = False) -> Results | None:
        """Run the case in eager; None where it raises."""
        args = case.fresh_args()
        before = [version(arg) for arg in args]
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                state = torch.default_generator.manual_seed(SEED).get_state()
                outputs = case.program(*args)
                draws = not torch.equal(state, torch.get_rng_state())
        except Exception:
            return None
        pairs = zip(args, before, case.fresh_args(), strict=True)
        changed = [version(arg) != was or not same_bits(arg, old) for arg, was, old in pairs]
        silent = [call for call in case.program.every_call if call.target.endswith(_SILENT)]
        kept = {ref.name for call in silent for ref in call.refs()[1:]}
        named = zip(case.program.inputs, changed, strict=True)
        written = tuple(at for at, (name, wrote) in enumerate(named) if wrote or name in kept)
        return cls(outputs, args, draws, written, list(leaves(case.program.outputs)), flat)

    @property
    def names(self) -> list[tuple[str, Any]]:
        """The leaves of the result, and how they are called."""
        return list(paths(self.outputs, "output"))

    @property
    def shares_memory(self) -> bool:
        """Whether a result may lie in the memory of an input. Those that are written to are copies in a flat script."""
        copied = self.written if self.flat else ()
        inputs = {storage_key(tensor) for at, tensor in enumerate(self.inputs) if at not in copied}
        tensors = [leaf for _, leaf in self.names if isinstance(leaf, Tensor)]
        return any(leaf.layout is not torch.strided or storage_key(leaf) in inputs for leaf in tensors)

    @property
    def dtypes(self) -> list[torch.dtype] | None:
        """The dtypes of what a flat script has; None where numbers are among the results."""
        if not self._all_tensors():
            return None
        own = [leaf for _, leaf in self.names if not self._is_written(leaf)]
        return [tensor.dtype for tensor in [*own, *(self.inputs[at] for at in self.written)]]

    def expected(self, called: str) -> str:
        """Return an expression for what a flat script has, given one for what its program gives."""
        if self.written:
            return called if self._each_named() else ALL_TENSORS.format(called)
        if self._all_tensors() and isinstance(self.outputs, Tensor) and not self.outputs.is_nested:
            return f"[{called}]"
        flat = isinstance(self.outputs, tuple | list) and all(name.count("[") == 1 for name, _ in self.names)
        return called if flat and self._all_tensors() else ALL_TENSORS.format(called)

    def body(self, program: Program) -> list[str]:
        """Return the statements of a flat script's program."""
        if not self.written:
            return source.body(program)
        written = [program.inputs[at] for at in self.written]
        copies = [f"{name} = {name}.clone()" for name in written]
        if self._each_named():
            own = [ref for ref, (_, leaf) in zip(self.refs, self.names, strict=True) if not self._is_written(leaf)]
            outputs = (*own, *map(Ref, written))
            return [*copies, *source.body(dataclasses.replace(program, outputs=outputs))]
        *lines, last = source.body(program)
        names = source.tuple_of(written)
        own_leaves = (
            f"[leaf for leaf in tree_leaves({last.removeprefix('return ')}) if not any(leaf is arg for arg in {names})]"
        )
        return [*copies, *lines, f"return {own_leaves}, {names}"]

    def leaf(self, place: Place) -> Any:
        """Return what is at a place, None if nothing is."""
        if place.side == "input":
            at = place.path[0] if len(place.path) == 1 else None
            return self.inputs[at] if isinstance(at, int) and at < len(self.inputs) else None
        return dict(self.names).get(str(place))

    def expressions(self, place: Place) -> tuple[str, str] | None:
        """Return how a script writes eager's and the compiler's at a place; None where it cannot be reached."""
        if self.leaf(place) is None:
            return None
        if not self.flat:
            steps = "".join(f"[{python_source(step)}]" for step in place.path)
            sides = ("expected_inputs", "given") if place.side == "input" else ("expected", "got")
            return f"{sides[0]}{steps}", f"{sides[1]}{steps}"
        leaf, kept = self.leaf(place), self._flat()
        name = next((f"input[{at}]" for at, tensor in enumerate(self.inputs) if tensor is leaf), str(place))
        name = name if name in kept else str(place)
        return (f"expected[{kept.index(name)}]", f"got[{kept.index(name)}]") if name in kept else None

    def _flat(self) -> list[str]:
        """What a flat script has: the tensors of the results, but those that are written to, and these after them."""
        own = [name for name, leaf in self.names if isinstance(leaf, Tensor) and not self._is_written(leaf)]
        return own + [f"input[{at}]" for at in self.written]

    def _all_tensors(self) -> bool:
        return all(isinstance(leaf, Tensor) for _, leaf in self.names)

    def _each_named(self) -> bool:
        """Whether the program names each of its results by itself."""
        return self._all_tensors() and len(self.refs) == len(self.names)

    def _is_written(self, leaf: Any) -> bool:
        return any(leaf is self.inputs[at] for at in self.written)
