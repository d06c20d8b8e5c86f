"""Windows for targets that have none, and tensors of few dims: as many windows as they hold, slices for the rest.

``flat.windows`` adds a dim for each dim it slides over, and a convolution over space has four before. Where a target
holds no tensor of that many dims, what reduces or contracts the windows is done place by place, and combined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torchstone.compiler.ir import Operation, TensorType, Value, values_in
from torchstone.compiler.ir.dims import floordiv
from torchstone.compiler.transforms.builder import Builder

Takes = Callable[[Operation], "str | None"]
Attributes = dict[str, Any]

_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "and": "and", "or": "or"}
_SLIDING = ("dims", "kernel", "stride", "dilation")


def narrowed(ops: Sequence[Operation], outputs: Any, takes: Takes) -> Sequence[Operation]:
    """Return ops with equal outputs in which no windows have more dims than the target holds, if they are combined."""
    made = {id(op.result): op for op in ops if op.name == "flat.windows" and not _holds(takes, op.result.tensor)}
    if not made:
        return ops
    out: list[Operation] = []
    for op in ops:
        sliding = [v for v in op.values if id(v) in made]
        if len(sliding) != 1 or op.name not in ("flat.reduce", "flat.contract"):
            out.append(op)
            continue
        windows = made[id(sliding[0])]
        b = Builder(out, op.location)
        _Combined(b, takes, op, sliding[0]).build(
            next(windows.values), windows.attributes, list(op.values), op.attributes
        )
        out[-1].results = op.results
    used = {id(v) for v in values_in(outputs)} | {id(v) for op in out for v in op.values}
    return [op for op in out if op.name != "flat.windows" or id(op.result) not in made or id(op.result) in used]


def _holds(takes: Takes, kind: TensorType) -> bool:
    """Ask a target for the plainest op there is on a tensor of this type."""
    x = Value(kind)
    return takes(Operation("flat.transpose", (x,), (Value(kind),), {"permutation": tuple(range(kind.rank))})) is None


class _Combined:
    """Builds one reduce or contract of windows; ``side`` is the operand that the windows are."""

    def __init__(self, b: Builder, takes: Takes, op: Operation, sliding: Value) -> None:
        self.b, self.takes, self.name = b, takes, op.name.removeprefix("flat.")
        self.side = "ab"[list(op.values).index(sliding)]
        self.other = "ba"[list(op.values).index(sliding)]
        self.combine = _COMBINE[op.attributes["kind"]] if self.name == "reduce" else "add"

    def build(self, x: Value, sliding: Attributes, operands: Sequence[Value], attributes: Attributes) -> Value:
        """Emit the op over the windows of ``x``; of ``operands`` the one that is not windows is used."""
        count = len(sliding["dims"])
        summed = attributes["dims"] if self.name == "reduce" else attributes[f"{self.side}_sum"]
        peeled = [j for j in range(count) if x.rank + j in summed]
        size = TensorType((*x.shape, *sliding["kernel"]), x.dtype)
        if _holds(self.takes, size) or not peeled:
            windows = self.b.windows(x, **sliding) if count else x
            new = [windows if "ab"[i] == self.side else v for i, v in enumerate(operands)]
            return self.b.emit(self.name, *new, **attributes)[0]
        total = None
        j = peeled[-1]
        for place in range(sliding["kernel"][j]):
            part = self._at(x, sliding, operands, attributes, j, place)
            total = part if total is None else self.b.emit(self.combine, total, part)[0]
        assert total is not None
        return total

    def _at(
        self, x: Value, sliding: Attributes, operands: Sequence[Value], attributes: Attributes, j: int, place: int
    ) -> Value:
        """The op over what is at one place of the windows along their dim j."""
        dim, kernel, step, apart = (sliding[name][j] for name in _SLIDING)
        last = floordiv(x.shape[dim] - ((kernel - 1) * apart + 1), step) * step
        row = self.b.slice(x, dim, place * apart, place * apart + last + 1, step)
        rest = {name: _without(sliding[name], j) for name in _SLIDING}
        gone = x.rank + j
        if self.name == "reduce":
            return self.build(row, rest, operands, attributes | {"dims": _closed(attributes["dims"], gone)})
        q = attributes[f"{self.side}_sum"].index(gone)
        weight = operands["ab".index(self.other)]
        drop = attributes[f"{self.other}_sum"][q]
        thin = self.b.slice(weight, drop, place, place + 1)
        thin = self.b.reshape(thin, _without(weight.shape, drop))
        new = [thin if "ab"[i] == self.other else v for i, v in enumerate(operands)]
        changed = {
            f"{side}_{part}": _closed(attributes[f"{side}_{part}"], gone if side == self.side else drop)
            for side in "ab"
            for part in ("batch", "sum")
        }
        return self.build(row, rest, new, changed)


def _without(values: Sequence[Any], position: int) -> tuple[Any, ...]:
    return (*values[:position], *values[position + 1 :])


def _closed(dims: Sequence[int], gone: int) -> tuple[int, ...]:
    """Return dims of a tensor that has lost one."""
    return tuple(d - (d > gone) for d in dims if d != gone)
