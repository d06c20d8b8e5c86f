"""A program in the making: the values it has so far, each with the tensor eager computes for it."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.execution.undefined_behavior import rules_checked
from torchstone.conformance.oracle.op_traits.execution import VIEW_OR_COPY
from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.literals import Ref, leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.program.tensor_storage import copy_tensors
from torchstone.fuzz.generator import values
from torchstone.fuzz.generator.choices import Choices
from torchstone.fuzz.generator.novelty import TRIES, Feature, Novelty
from torchstone.fuzz.generator.writes import Memory, is_writable, why_undefined

T = TypeVar("T")

MOST_RESULTS = 16
"""Tensors that a call may give: ``split`` of a long dim gives a thousand, which a compiler takes a minute for."""
LIMITS = {False: 1e4, True: 1e12}
"""Magnitude above which nothing takes a result: what follows it would overflow a half or drown in rounding.

The second is that of programs whose inputs are of all magnitudes.
"""
TOLD = 50
"""Of a hundred programs, how many are of the dtype that is told, if one is."""
ALL_MAGNITUDES = 10
"""Of a hundred programs, how many these are."""
KNOWN = {dtype for dtype, _ in values.DTYPES} | {torch.complex128, *values.STORED}

NEUTRAL = 35
"""Of a hundred numbers among the arguments, how many are 0, 1 or -1: what compilers take a call away for."""
ROOMY = 50
"""Of a hundred inputs of special values, how many have room for all of them."""
AGAIN = 6
"""Of a hundred second operands, how many are the first one."""

_STATE = ("inputs", "values", "calls", "used", "features", "_made_by", "_loose", "_copies")
"""What of a draft is as it was after a call that is refused."""


@dataclass(frozen=True)
class DraftValue:
    """A tensor of the program. ``exact``: no rounding went into it, so every backend must have its very bits.

    ``last``: it is too large for a call to take it, and is returned as it is.

    It is what the calls so far have made of it: a call that writes changes all values that share the memory.
    """

    ref: Ref
    tensor: Tensor
    exact: bool
    last: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def dim(self) -> int:
        return self.tensor.dim()

    @property
    def dtype(self) -> torch.dtype:
        return self.tensor.dtype


@dataclass(frozen=True)
class Arguments:
    """Drawn arguments of a call: Values and literals, in lists, tuples and dicts.

    ``exact``: whether each of the results is, where the bodies among the arguments tell.
    """

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    exact: tuple[bool, ...] | None = None


class CallRejected(Exception):
    """A drawn call does not do: eager rejects it, or its result would not be worth comparing."""


class Draft:
    """A program under construction. Rules draw operands from it and hand it the call they chose.

    ``needs_exact`` holds while a rule draws for an op that jumps (floor, argmax, ``==``): its operands must be exact,
    or a last-bit difference that is nobody's fault becomes a difference of one. ``dtypes`` are what the op takes.
    ``writes`` holds until the operand is drawn that the op is going to write to.
    ``specials`` puts infinities, nans and negative zeros into new inputs, and lets them into results. ``grow`` appends
    a call to a draft of a program inside of this one, and ``depth`` says inside of how many others this one is.
    ``most`` is how many calls it may have. ``novelty`` says what no program had yet, which then is drawn more often;
    ``op`` is the one that is drawn for.
    """

    def __init__(
        self,
        choices: Choices,
        specials: bool = False,
        grow: Callable[[Draft], bool] = lambda body: False,
        outer: Draft | None = None,
        novelty: Novelty | None = None,
    ) -> None:
        self.choices = choices
        self.specials = specials
        self.grow = grow
        self.most = 1
        self.novelty = novelty
        self.op = ""
        self.features: set[Feature] = set()
        self._made_by: dict[str, str] = {}
        self.depth = 0 if outer is None else outer.depth + 1
        self.inputs: dict[str, Tensor] = {}
        self.values: list[DraftValue] = []
        self.calls: list[Call] = []
        self.used: set[str] = set()
        self.drawn: set[Ref] = set()
        self.base = self._draw_base() if outer is None else outer.base
        self.all_magnitudes = choices.chance(ALL_MAGNITUDES) if outer is None else outer.all_magnitudes
        self.needs_exact = self.writes = False
        self._loose: set[int] = set()  # storages of which PyTorch leaves open whether they are one with another
        self._copies: dict[int, torch.UntypedStorage] = {}
        self.dtypes: frozenset[torch.dtype] = frozenset()

    def _draw_base(self) -> torch.dtype:
        told = self.novelty.dtype if self.novelty else None
        if told in dict(values.DTYPES) and self.choices.chance(TOLD):
            return told
        hot = self.novelty.hot_dtypes() if self.novelty else []
        hot = [dtype for dtype, _ in values.DTYPES if dtype in hot]
        return self.choices.pick(hot) if hot and self.choices.chance(30) else self.choices.weighted(values.DTYPES)

    def novel(self, kind: str, draw: Callable[[], T], fact: Callable[[T], Hashable] = lambda drawn: drawn) -> T:
        """Return what is drawn; of several the first of which the op has had no such fact, if there is guidance."""
        drawn = first = draw()
        for _ in range(TRIES - 1 if self.novelty else 0):
            if self.novelty and self.novelty.is_new((self.op, kind, fact(drawn))):
                return drawn
            drawn = draw()
        return first

    def unpaired(self, fitting: Sequence[DraftValue]) -> list[DraftValue]:
        """Of these the results of ops after which no program had this one, if there is guidance."""
        if self.novelty is None:
            return []
        made = [(value, self._made_by.get(value.ref.name)) for value in fitting]
        return [value for value, op in made if op and self.novelty.is_new((self.op, "after", op))]

    # What rules draw

    def tensor(
        self,
        *,
        where: Callable[[DraftValue], bool] = lambda value: True,
        shape: Sequence[int] | None = None,
        ranks: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        bounds: tuple[float, float] = values.ANY,
        distinct: bool = False,
    ) -> DraftValue:
        """Draw an operand: mostly a value the program already has, if one fits, otherwise a new input.

        ``shape`` or ``ranks`` and ``dtype`` say what is asked for; ``bounds`` is the op's open domain, within which
        every element must lie; ``distinct`` asks for no ties. ``where`` filters the values at hand.
        """

        writes, self.writes = self.writes, False

        def fits(value: DraftValue) -> bool:
            return (
                not value.last
                and (not writes or is_writable(value.tensor))
                and (shape is None or value.shape == tuple(shape))
                and (ranks is None or value.dim in ranks)
                and (value.dtype == dtype if dtype else not self.dtypes or value.dtype in self.dtypes)
                and (value.exact or not self.needs_exact)
                and bool(values.within(value.tensor, bounds).all())
                and (not distinct or values.comparable(value.tensor).unique().numel() == value.tensor.numel())
                and where(value)
            )

        fitting = [value for value in reversed(self.values) if fits(value)]
        if self.choices.chance(90):  # x - x shows less than x - y
            fitting = [value for value in fitting if value.ref not in self.drawn]
        # Results that nothing takes yet come first: a program of five calls should be a chain more often than a heap.
        waiting = [v for v in fitting if v.ref.name not in self.used and v.ref.name not in self.inputs]
        views = [v for v in fitting if self._shares_memory(v)] if writes else []
        if views and self.choices.chance(75):  # what is written has to be seen under another name
            chosen = self.choices.pick(views)
        elif (unpaired := self.unpaired(fitting)) and self.choices.chance(75):
            chosen = self.choices.pick(unpaired)
        elif waiting and self.choices.chance(75):
            chosen = self.choices.pick(waiting)
        elif fitting and not self.choices.chance(20):
            chosen = self.choices.pick(fitting)
        else:
            wanted = tuple(shape) if shape is not None else self._draw_shape(ranks)
            chosen = self.fresh(wanted, dtype or self.dtype(), bounds, distinct, writes)
        self.drawn.add(chosen.ref)
        return chosen

    def dtype(self) -> torch.dtype:
        """Draw a dtype the op takes: mostly the program's own, so that promotion is there but does not take over."""
        drawn = (*values.DTYPES, *((dtype, values.STORED_WEIGHT) for dtype in values.STORED))
        allowed = [(dtype, weight) for dtype, weight in drawn if not self.dtypes or dtype in self.dtypes]
        if not allowed:
            raise CallRejected("no dtype of ours is taken")
        met = self.novelty is not None and not self.novelty.is_new((self.op, "dtype", self.base))
        if self.base in dict(allowed) and not self.choices.chance(40 if met else 20):
            return self.base
        return self.novel("dtype", lambda: self.choices.weighted(allowed))

    def _draw_shape(self, ranks: Sequence[int] | None) -> tuple[int, ...]:
        drawn = self.novel("shape", lambda: values.draw_shape(self.choices, ranks), values.kind_of_shape)
        # Where one element is as good as another, each special value is to be among them, beside each other.
        return values.draw_large(self.choices, len(drawn)) if self.specials and self.choices.chance(ROOMY) else drawn

    def fresh(
        self,
        shape: Sequence[int],
        dtype: torch.dtype,
        bounds: tuple[float, float] = values.ANY,
        distinct: bool = False,
        writes: bool = False,
    ) -> DraftValue:
        """Add an input; one that is written to has each element in a place of its own."""
        if distinct and torch.Size(shape).numel() > (2 if dtype == torch.bool else 100):
            raise CallRejected(f"no {torch.Size(shape).numel()} distinct {dtype} are near zero")
        bounds = values.ANY if dtype.is_complex else bounds  # a domain is one of real numbers
        if bounds == values.ANY and not distinct and not self.depth and self.choices.chance(values.SHARED):
            part = values.draw_part(self.choices, list(self.inputs.values()), shape, dtype)
            if part is not None:
                return self.given(part)
        drawn = values.draw_contents(self.choices, shape, dtype, *bounds, distinct=distinct)
        if not distinct and dtype != torch.bool:
            wide = None
            if self.all_magnitudes:
                wide = values.draw_magnitudes(self.choices, shape, dtype)
            elif self.choices.chance(values.MIXED):
                wide = values.draw_mixed(self.choices, shape, dtype)
            drawn = drawn if wide is None else wide.where(values.within(wide, bounds), drawn)
        anything = bounds == values.ANY or self.specials
        if anything and not distinct and self.choices.chance(values.SPECIAL_ROWS[self.specials]):
            drawn = values.draw_row(self.choices, drawn, self.specials)
        elif self.specials and not distinct:
            drawn = values.insert_specials(self.choices, drawn)
        layouts = values.LAYOUTS[:-1] if distinct else values.LAYOUTS
        layout = self.novel("layout", lambda: self.choices.weighted(layouts))
        laid = values.draw_layout(self.choices, drawn, layout=layout)
        self.features.add((self.op, "layout", layout))
        return self.given(laid if not writes or is_writable(laid) else drawn)

    def given(self, tensor: Tensor, exact: bool = True) -> DraftValue:
        """Add this very tensor as an input; to a body, which may not write to it, plain and in memory of its own, as
        PyTorch asks."""
        if self.depth:
            tensor = tensor.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format)
        self._check("an input", tensor)
        name = f"x{len(self.inputs)}"
        self.inputs[name] = tensor
        (own,) = copy_tensors((tensor,), copies=self._copies)  # a call may write to it
        if self.depth:
            self._loose = {*self._loose, storage_key(own)}
        self.values.append(DraftValue(Ref(name), own, exact))
        return self.values[-1]

    def body(self, operands: Iterable[DraftValue]) -> Draft:
        """Return the draft of a program inside of this one, which these are given to. Inputs of its own come after."""
        inner = Draft(self.choices, self.specials, self.grow, self, self.novelty)
        for operand in operands:
            name = f"x{len(inner.inputs)}"
            inner.inputs[name] = operand.tensor
            (own,) = copy_tensors((operand.tensor,), copies=inner._copies)
            inner._loose.add(storage_key(own))
            inner.values.append(DraftValue(Ref(name), own, operand.exact))
        return inner

    def broadcast(self, value: DraftValue, dtypes: Iterable[torch.dtype] | None = None, **wanted: Any) -> DraftValue:
        """Draw an operand that broadcasts with ``value``: one at hand, or a new input of a broadcast shape."""
        allowed = None if dtypes is None else set(dtypes)

        def fits(other: DraftValue) -> bool:
            return _broadcasts(value.shape, other.shape) and (allowed is None or other.dtype in allowed)

        bounds = wanted.get("bounds", values.ANY)
        if self.choices.chance(AGAIN) and fits(value) and bool(values.within(value.tensor, bounds).all()):
            return value
        keep = self.choices.integer(0, value.dim) if self.choices.chance(30) else 0
        size = [1 if self.choices.chance(20) else length for length in value.shape[keep:]]
        dtype = None
        if allowed is not None:
            dtype = value.dtype if value.dtype in allowed else self.choices.pick(sorted(allowed, key=str))
        fitting = [v for v in reversed(self.values) if fits(v)]
        if fitting and self.choices.chance(50):
            return (
                self.tensor(where=fits, **wanted) if dtype is None else self.tensor(where=fits, dtype=dtype, **wanted)
            )
        return self.tensor(shape=size, where=fits, dtype=dtype, **wanted)

    def axis(self, value: DraftValue) -> int:
        """Draw a dim of ``value``, counted from the front or from the back; 0 for a 0-d tensor."""
        if value.dim == 0:
            return 0
        dim = self.choices.integer(0, value.dim - 1)
        return dim - value.dim if self.choices.chance(50) else dim

    def axes(self, value: DraftValue) -> list[int]:
        """Draw at least one dim of ``value``, none twice; empty for a 0-d tensor."""
        if value.dim == 0:
            return []
        dims = self.choices.shuffled(range(value.dim))[: self.choices.integer(1, value.dim)]
        return [dim - value.dim if self.choices.chance(50) else dim for dim in dims]

    def scalar(self, dtype: torch.dtype) -> bool | int | float:
        """Draw a Python number of the kind ``dtype`` is, or of a lower one."""
        if dtype == torch.bool:
            return self.choices.chance(50)
        if self.choices.chance(NEUTRAL):
            whole = self.choices.pick((0, 1, 1 if dtype == torch.uint8 else -1))
            return float(whole) if dtype.is_floating_point and self.choices.chance(50) else whole
        if (dtype.is_floating_point or dtype.is_complex) and not self.choices.chance(30):
            return self.choices.integer(-8, 8) / 4
        return self.choices.integer(0 if dtype == torch.uint8 else -3, 5)

    # What becomes of a drawn call

    def call(self, target: str, arguments: Arguments, exact: bool, cuts: bool, elementwise: bool = False) -> None:
        """Append a call if eager runs it and its results are worth comparing; raises CallRejected otherwise.

        ``elementwise``: it may write to an operand that it is given twice.
        """
        operands = [leaf for leaf in leaves((arguments.args, arguments.kwargs)) if isinstance(leaf, DraftValue)]
        memory = Memory([operand.tensor for operand in operands])
        try:
            call = Call(target, arguments.args, arguments.kwargs, "")
            self._append(call, operands, memory, exact, cuts, elementwise, arguments.exact)
        except CallRejected:
            memory.restore()
            raise

    def _append(
        self,
        drawn: Call,
        operands: list[DraftValue],
        memory: Memory,
        exact: bool,
        cuts: bool,
        elementwise: bool,
        told: tuple[bool, ...] | None,
    ) -> None:
        target = drawn.target
        filled = drawn.map_arguments(lambda leaf: leaf.tensor if isinstance(leaf, DraftValue) else leaf)
        try:
            with rules_checked(drawn):
                result = resolve(target)(*filled.args, **filled.kwargs)
        except Exception as error:
            raise CallRejected(f"{target}: {error}") from None
        places = memory.written()
        written = [operand.tensor for operand in operands if storage_key(operand.tensor) in places]
        if places & self._loose:
            raise CallRejected(f"{target}: it writes to what is a view or a copy")
        if undefined := why_undefined(written, [operand.tensor for operand in operands], elementwise):
            raise CallRejected(f"{target}: {undefined}")
        changed = [value for value in self.values if storage_key(value.tensor) in places]
        found = list(_results(result))
        if not found and not written:
            raise CallRejected(f"{target}: no tensor among its results")
        if len(found) > MOST_RESULTS:
            raise CallRejected(f"{target}: {len(found)} results")
        returned = [tensor for _, tensor in found]
        for tensor in returned:
            self._check(target, tensor, written=False)
        for value in changed:
            self._check(target, value.tensor)
        blurred = not all(operand.exact for operand in operands)
        if blurred and told is None and not all(map(rounds, [*returned, *written])):
            raise CallRejected(f"{target}: integers from rounded operands, where a last bit makes a difference of one")
        if cuts and any(operand.dtype.is_complex and not operand.exact for operand in operands):
            raise CallRejected(f"{target}: a rounded zero would choose the side of a branch cut")
        all_exact = exact and not blurred
        if not all_exact and any(map(rounds, written)):
            if not all(rounds(value.tensor) for value in changed):
                raise CallRejected(f"{target}: integers that share memory with rounded numbers")
            self.values = [replace(v, exact=False) if storage_key(v.tensor) in places else v for v in self.values]
        if VIEW_OR_COPY.has(drawn.operator):
            self._loose |= {storage_key(tensor) for tensor in (*returned, *(operand.tensor for operand in operands))}
        name = f"v{len(self.calls)}"
        call = drawn.map_arguments(lambda leaf: leaf.ref if isinstance(leaf, DraftValue) else leaf)
        self.calls.append(replace(call, result=name))
        self._made_by[name] = self.op
        self._note(operands)
        self.used |= {operand.ref.name for operand in operands}
        # What shares memory with what was written is another value now, which has to be seen, unless it is the result.
        unseen = {v.ref.name for v in changed if not any(v.tensor is tensor for tensor in returned)}
        self.used -= unseen - set(self.inputs)
        for at, (path, tensor) in enumerate(found):
            is_exact = not rounds(tensor) or (all_exact if told is None else told[at])
            self.values.append(DraftValue(Ref(name, path), tensor, is_exact, self._is_last(tensor)))

    def _note(self, operands: Iterable[DraftValue]) -> None:
        self.features.add((self.op, "called", True))
        for operand in operands:
            self.features |= {
                (self.op, "dtype", operand.dtype),
                (self.op, "shape", values.kind_of_shape(operand.shape)),
            }
            if operand.ref.name in self._made_by:
                self.features.add((self.op, "after", self._made_by[operand.ref.name]))

    def attempt(self, draw: Callable[[Draft], None]) -> bool:
        """Run ``draw`` and keep what it added to the program, unless it is refused."""
        before = {name: copy.copy(getattr(self, name)) for name in _STATE}
        self.drawn, self.writes = set(), False
        try:
            draw(self)
        except CallRejected:
            vars(self).update(before)
            return False
        return True

    def program(self) -> Program:
        """Return the program; its outputs are every value no later call takes, so that no call is dead.

        One that does nothing but write to its inputs returns these.
        """
        results = [value.ref for value in self.values if value.ref.name not in self.inputs]
        leaves = [ref for ref in results if ref.name not in self.used]
        taken = [name for name in self.inputs if name in self.used]
        leaves = leaves or [Ref(name) for name in taken]
        outputs = leaves[0] if len(leaves) == 1 else tuple(leaves)
        return Program(tuple(taken), tuple(self.calls), outputs)

    def _check(self, target: str, tensor: Tensor, written: bool = True) -> None:
        """Refuse a tensor that no program is to have; ``written``: one that other calls have taken, or may."""
        if tensor.layout != torch.strided or tensor.dtype not in KNOWN:
            raise CallRejected(f"{target}: a {tensor.layout} {tensor.dtype} result")
        if any(length < 0 for length in tensor.shape):  # eager's expand(-1, 0) of a number has such a result
            raise CallRejected(f"{target}: a result of {tuple(tensor.shape)}")
        if tensor.numel() > values.NUMEL:
            raise CallRejected(f"{target}: a result of {tensor.numel()} elements")
        if not self.specials and not math.isfinite(_largest(tensor)):
            raise CallRejected(f"{target}: a result that is not finite")
        if written and self._is_last(tensor):
            raise CallRejected(f"{target}: a result as large as {_largest(tensor)}")

    def _is_last(self, tensor: Tensor) -> bool:
        """Whether it is too large for another call."""
        return LIMITS[self.all_magnitudes] < _largest(tensor) < math.inf  # an infinity is a special value

    @property
    def has_views(self) -> bool:
        """Whether two values share memory, so that one can be written through the other."""
        return len({storage_key(value.tensor) for value in self.values}) < len(self.values)

    def _shares_memory(self, value: DraftValue) -> bool:
        key = storage_key(value.tensor)
        return any(other is not value and storage_key(other.tensor) == key for other in self.values)


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor lies as a new one of its shape does."""
    if tensor.is_conj() or tensor.is_neg() or tensor.storage_offset():
        return False
    return tensor.stride() == torch.empty(tensor.shape, device="meta").stride()


def _largest(tensor: Tensor) -> float:
    """The largest magnitude of a floating-point or complex tensor, of others 0; NaN where there is one."""
    return float(values.comparable(tensor.detach()).abs().amax()) if tensor.numel() and rounds(tensor) else 0.0


def rounds(tensor: Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _broadcasts(one: Sequence[int], other: Sequence[int]) -> bool:
    return all(a == b or 1 in (a, b) for a, b in zip(reversed(one), reversed(other), strict=False))


def _results(result: Any, path: tuple[int, ...] = ()) -> Iterable[tuple[tuple[int, ...], Tensor]]:
    if isinstance(result, Tensor):
        yield path, result
    elif isinstance(result, list | tuple):
        for at, part in enumerate(result):
            yield from _results(part, (*path, at))
