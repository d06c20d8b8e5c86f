"""What stands for the values of a graph while its network is built: no layer is added before its result is read.

Elementwise layers repeat dims of size 1 themselves, so a broadcast is no layer where only they read it. A shuffle layer
transposes, reshapes and transposes, so that such ops in a row are one. A number is one constant, however often, and in
whatever shape, it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir import Operation, TensorType, Value
from torchstone.compiler.ir.dims import Dim, Shape
from torchstone.compiler.lowering.tensorrt.network import Network
from torchstone.compiler.runtime.tensorrt import rules


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A shuffle of a tensor of sizes ``have``: what is None does nothing. ``op`` is the last one that is in it."""

    source: Any
    have: Shape
    op: Operation
    first: tuple[int, ...] | None = None
    want: Shape | None = None
    second: tuple[int, ...] | None = None

    def made(self, n: Network) -> Any:
        """Add the layer; there is none where nothing moves."""
        first, second = _moving(self.first), _moving(self.second)
        permuted = self.have if first is None else tuple(self.have[p] for p in first)
        want = None if self.want == permuted else self.want
        steps = (first, want, second)
        return self.source if steps == (None, None, None) else n.shuffle(self.source, self.have, *steps)


def _moving(permutation: tuple[int, ...] | None) -> tuple[int, ...] | None:
    return None if permutation is None or permutation == tuple(range(len(permutation))) else permutation


@dataclass(slots=True)
class Held:
    """The elements of a value, of sizes ``shape``: those of the value, or 1 where all along that dim are equal.

    One of four stands for them: the ``tensor`` that has them, the ``shuffle`` that makes it when it is read, ``splat``,
    the number that all are, of a ``tensorrt.DataType``, or ``parameter``, a tensor of torch that is written as one.
    """

    shape: Shape
    tensor: Any = None
    shuffle: Shuffle | None = None
    splat: tuple[Any, str] | None = None
    parameter: tuple[Any, str] | None = None

    def read(self, n: Network) -> Any:
        """Return the tensor; it is made at the first call."""
        if self.tensor is None and self.shuffle is not None:
            with n.building(self.shuffle.op):
                self.tensor = self.shuffle.made(n)
                check_type(self.shuffle.op, self.tensor, self.shape)
        elif self.tensor is None and self.splat is not None:
            self.tensor = n.constant(self.splat[0], self.shape, self.splat[1])
        elif self.tensor is None and self.parameter is not None:
            self.tensor = n.parameter(*self.parameter)
        return self.tensor

    def _pending(self, n: Network, op: Operation) -> Shuffle:
        """Return the shuffle that ``op`` is added to: the one that is still to be made, else a new one."""
        if self.tensor is None and self.shuffle is not None:
            return replace(self.shuffle, op=op)
        return Shuffle(self.read(n), self.shape, op)

    def transposed(self, n: Network, op: Operation, permutation: Sequence[int]) -> Held:
        shape = tuple(self.shape[p] for p in permutation)
        if self.splat is not None:
            return Held(shape, splat=self.splat)
        s = self._pending(n, op)
        when = "first" if s.want is None else "second"
        before = getattr(s, when) or range(len(shape))
        return Held(shape, shuffle=replace(s, **{when: tuple(before[p] for p in permutation)}))

    def reshaped(self, n: Network, op: Operation, full: Shape, shape: Shape) -> Held:
        """A reshape from the sizes of the value, ``full``; a parameter is written in the sizes that it is read in."""
        if self.splat is not None:
            return Held((1,) * len(shape), splat=self.splat)
        if self.parameter is not None and self.tensor is None:
            known, dtype = self.parameter
            return Held(shape, parameter=(known.reshape(shape), dtype))
        s = self._pending(n, op)
        if s.second is not None or self.shape != full:
            s = Shuffle(n.expand(self.read(n), self.shape, full), full, op)
        return Held(shape, shuffle=replace(s, want=shape))

    def untransposed(self) -> Any:
        """Return the tensor of which this is the transpose in the last two dims, while it is still to be made."""
        s = self.shuffle
        if self.tensor is not None or s is None or s.first is None or (s.want, s.second) != (None, None):
            return None
        last = len(s.first) - 1
        return s.source if s.first == (*range(last - 1), last, last - 1) else None


def check_type(op: Operation, tensor: Any, shape: Shape) -> None:
    """Require that TensorRT infers the dtype the graph says, and these sizes."""
    want, got = TensorType(shape, op.result.dtype), tuple(tensor.shape)
    same = len(got) == want.rank and rules.carrier(want.dtype) == tensor.dtype.name
    if not same or any(isinstance(w, int) and g not in (-1, w) for w, g in zip(shape, got, strict=True)):
        raise TorchstoneError(f"{op.name}: TensorRT infers {tensor.dtype.name}{list(got)}, want {want}", stage="lower")


class Values:
    """What is held of each value of a graph."""

    def __init__(self, n: Network) -> None:
        self._network = n
        self._held: dict[int, Held] = {}
        self._makers: dict[int, Operation] = {}

    def __getitem__(self, value: Value) -> Held:
        return self._held[id(value)]

    def __setitem__(self, value: Value, held: Held) -> None:
        self._held[id(value)] = held

    def made(self, op: Operation, held: Held) -> None:
        """Note the result of ``op``, which is to blame for what it takes to give it all of its sizes."""
        self[op.result], self._makers[id(op.result)] = held, op

    def full(self, value: Value) -> Any:
        """Return the tensor of a value with all of its sizes."""
        n, held = self._network, self[value]
        tensor = held.read(n)
        if held.shape != value.shape:
            with n.building(self._makers[id(value)]):
                tensor = n.expand(tensor, held.shape, value.shape)
            self[value] = Held(value.shape, tensor)
        return tensor

    def narrow(self, values: Sequence[Value]) -> tuple[list[Any], Shape]:
        """Return tensors that broadcast against each other, and the sizes they have together."""
        held = [self[v] for v in values]
        shape: list[Dim] = []
        for column in zip(*(h.shape for h in held), strict=True):
            shape.append(next((size for size in column if size != 1), 1))
        # A 1 that is repeated has to be seen by TensorRT.
        tensors = (h.read(self._network) for h in held)
        told = (
            t if h.shape == tuple(shape) else self._network.told(t, h.shape) for t, h in zip(tensors, held, strict=True)
        )
        return list(told), tuple(shape)
