"""Variants of the numbers in the inputs: special values, extremes, magnitudes, cancellation.

``special``, ``extremes``, ``small`` and ``uniform`` are a list of values each, and one way to place them. Elements that
decide a result together form a group (see ``dependence``); for ``add`` each element is one, for a sum each row. Every
group of every input gets values of the list, and they are placed so that they meet in pairs: an orthogonal array. Take
``k`` values, ``k`` prime. Column ``c`` of the array holds, in row ``i``, the value number ``i + c * (i // k)`` modulo
``k``; in ``k * k`` rows, any two columns have each pair once. A column is what is placed in one input: the first value
of its groups, the second one, and of complex numbers the real and the imaginary part.

Small inputs are made larger where eager takes that, until all pairs fit. Where each column begins is drawn, so that a
0-d input may get any of the values.

Eager is left to the worker: some of its kernels end the process for a NaN, as MKL's eigenvalues do.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.variants.dependence import Groups, groups
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import answer, change_inputs, of_each_input, resized, together

Values = Callable[[torch.dtype], Sequence[float]]

OWN, FIRST, NEGATIVE, POSITIVE = object(), object(), object(), object()
"""In place of a value: the element as it is, the first one of its group, and numbers below -1 and above 1 like it."""

MAGNITUDE = 1e4
"""The largest number of ``magnitudes``, or the square root of what the dtype holds."""

MOST_HALVES = 20
"""The largest number of ``halves``."""

NEAR = 0.05
"""How far apart numbers of one size are, of the logarithm of the largest one: up to 1.6 times."""


def special_values(dtype: torch.dtype) -> list[float]:
    """NaN, infinities, zeros, ones and extremes, all of either sign, and subnormals; of complex numbers their parts.

    Parts of 2 and 0.5 beside a zero of either sign are both sides of the branch cuts, which end at 1, 0 and -1.
    """
    if not _is_float(dtype):
        return []
    info = torch.finfo(dtype)
    values = [math.inf, -math.inf, 0.0, -0.0, math.nan, 1.0, -1.0, info.max]
    return values + (
        [2.0, -2.0, 0.5, -0.5] if dtype.is_complex else [info.min, info.tiny / 2, -info.tiny / 2, -math.nan]
    )


def extremes(dtype: torch.dtype) -> list[float]:
    """Finite numbers at the ends of what the dtype holds, integers too."""
    if dtype == torch.bool:
        return []
    if _is_float(dtype):
        info = torch.finfo(dtype)
        return [info.max, info.min, info.tiny, -info.tiny, info.eps, 1 / info.eps, math.sqrt(info.max), -1.0]
    limits = torch.iinfo(dtype)
    return [limits.max, limits.min, limits.max - 1, 0, 1, limits.max // 2 + 1]


def ends_of_conversions(case: Case) -> list[float]:
    """The numbers that conversions to the dtypes of a program treat in ways of their own."""
    found: list[float] = []
    for dtype in sorted(_named_dtypes(case) - {tensor.dtype for tensor in case.args}, key=str):  # the same everywhere
        found += _ends_of_float(dtype) if dtype.is_floating_point else _ends_of_integer(dtype)
    return found


def _ends_of_float(dtype: torch.dtype) -> list[float]:
    """The largest number and beyond it, subnormals and what becomes 0; one halfway between two is among them."""
    info = torch.finfo(dtype)
    step, least = math.ldexp(info.eps, math.frexp(info.max)[1] - 1), info.tiny * info.eps
    return [info.max, -info.max - step / 4, info.max + step / 2, -0.75 * info.tiny, 1.5 * least, -least / 2]


def _ends_of_integer(dtype: torch.dtype) -> list[float]:
    """What is cut off to the largest and the smallest number, and numbers of either sign that no narrower integer
    holds, signed or not: a conversion may go by way of one."""
    limits = torch.iinfo(dtype)
    size = limits.max - limits.min + 1
    most = limits.max + 1 - max(1, size // 512)  # of 8 digits, which every float but those of 8 bits has
    wider = [sign * 1.5 * 2.0**bits for bits in (8, 16, 32) if 2**bits < size for sign in (1, -1)]
    return list(dict.fromkeys([limits.max + 0.5, most, limits.min - 0.5, limits.min, *wider]))


def _named_dtypes(case: Case) -> set[torch.dtype]:
    """The numbers that a case's program converts to: its arguments, methods (``x.half()``) and results say which."""
    found = {leaf.dtype for leaf in answer(case) or [] if isinstance(leaf, Tensor)}
    for call in case.program.calls:
        named = getattr(torch, call.target.rpartition(".")[2], None)
        found |= {leaf for leaf in (named, *leaves([call.args, call.kwargs])) if isinstance(leaf, torch.dtype)}
    return {dtype for dtype in found if not dtype.is_complex and dtype is not torch.bool}


def small_numbers(dtype: torch.dtype) -> list[float]:
    """Numbers so near 0 that one plus them is one, or next to one."""
    if not _is_float(dtype):
        return []
    info = torch.finfo(dtype)
    near, least = info.eps / 8, math.sqrt(info.tiny)
    return [near, -near, least, -least, math.sqrt(info.eps), 1 + info.eps, 1 - info.eps, -2 * near]


def uniform_values(dtype: torch.dtype) -> list[object]:
    """What a whole row may consist of."""
    if dtype == torch.bool:
        return [True, False]
    if _is_float(dtype):
        info = torch.finfo(dtype)
        return [-math.inf, math.nan, FIRST, NEGATIVE, math.inf, 0.0, POSITIVE, info.min, -0.0, info.max]
    info = torch.iinfo(dtype)
    return [FIRST, info.min, 0, info.max, *((NEGATIVE, POSITIVE) if info.min < 0 else ())]


REPEATED, TIMES = 1 << 12, 6
"""Elements of an input up to which a program is asked so often, with rows of other kinds, where it has fewer groups
than there are values. Two values of a group are then neighbours in the list: inf and -inf, 0 and -0. So often, a sum of
all elements meets each of the special values."""

LARGEST_RESULT = 1 << 18
"""Elements: inputs do not grow beyond what gives more of them."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Values placed in all groups of all inputs; ``whole`` fills a group with one, else it gets one or two.

    Floats get those of the numbers that ``more`` says of a case as well which their dtype holds.
    """

    values: Callable[[torch.dtype], Sequence[object]]
    none: str
    whole: bool = False
    more: Callable[[Case], Sequence[float]] | None = None

    def __call__(self, case: Case, most: int = TIMES) -> Case:
        """The case with values placed; several programs, ``most`` of them, where there are few groups to place in."""
        if self.more is not None:
            values, more = self.values, self.more(case)
            return replace(self, values=lambda dtype: [*values(dtype), *_held(more, dtype)], more=None)(case, most)
        names = [name for name, tensor in case.inputs.items() if self._are_numbers(case, tensor)]
        if not names:
            raise NotApplicable(self.none)
        change_inputs(case, torch.clone, self.none)  # refuses inputs that share memory
        begins = torch.randint(1 << 20, (4 * len(names),)).tolist()  # before eager is asked, for which the seed is set
        levels = len(_levels(self.values(case.inputs[names[0]].dtype)))
        case = _with_room(case, levels)
        found = {name: groups(case, name) for name in names}
        if self.whole:
            found = {name: those for name, those in found.items() if those.size > 1}
        if not found:
            raise NotApplicable("each result depends on one element of an input")
        there = max(int(those.group.max()) + 1 for those in found.values())
        places = max(len(self._places(those, 0)) for those in found.values())
        met = there + places - 1  # values that follow each other in the list, in one program
        few = self.whole or there < levels
        times = min(-(-levels // met), most) if few and case.args[0].numel() <= REPEATED else 1
        if few:  # samples take turns: a sum of all elements has one row
            first = next(iter(found))
            for column in range(self._columns(case.inputs[first], found[first], 0)):
                begins[column] = case.index * (TIMES if self.whole else 1) * met + column
        return together([self._filled(case, found, [at + met * n for at in begins]) for n in range(times)])

    def _filled(self, case: Case, found: dict[str, Groups], begins: Sequence[int]) -> Case:
        column, inputs = 0, dict(case.inputs)
        for name, those in found.items():
            inputs[name] = self._fill(case.inputs[name], those, column, begins)
            column += self._columns(inputs[name], those, column)
        return case.replace(inputs=inputs)

    def _are_numbers(self, case: Case, tensor: Tensor) -> bool:
        """Whether values may be placed: whole numbers beside floats are sizes and places."""
        mixed = any(_is_float(other.dtype) for other in case.args) and not _is_float(tensor.dtype)
        return bool(tensor.numel() and not mixed and self.values(tensor.dtype))

    def _columns(self, tensor: Tensor, found: Groups, column: int) -> int:
        """How many columns of the array a tensor takes."""
        return len(self._places(found, column)) * (1 + tensor.is_complex())

    def _fill(self, tensor: Tensor, found: Groups, column: int, begins: Sequence[int]) -> Tensor:
        """The tensor with values in its groups: the columns of the array from ``column`` on."""
        levels = _levels(self.values(tensor.dtype))
        real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()[..., None]
        real = real.clone()
        placed = itertools.product(self._places(found, column), real.unbind(-1))
        for number, (places, part) in enumerate(placed, column):
            level = (_level(found.group, number, len(levels)) + begins[number]) % len(levels)
            for at, value in enumerate(levels):
                if value is not OWN:
                    given = _exact(value, part) if (like := _like(part, found, value)) is None else like
                    part.copy_(torch.where(places & (level == at), given, part))  # where keeps the sign of a NaN
        return torch.view_as_complex(real) if tensor.is_complex() else real[..., 0]

    def _places(self, found: Groups, column: int) -> list[Tensor]:
        """Where the first value of each group goes, and where the second one: beside it, or half the group away."""
        if self.whole or found.size == 1:
            return [found.place >= 0]
        first = (found.group * (1 + column)) % found.size
        apart = torch.where(found.group % 2 == 0, 1, found.size // 2)
        return [found.place == first, found.place == (first + apart) % found.size]


def _held(numbers: Sequence[float], dtype: torch.dtype) -> list[float]:
    """Those of the numbers that a float dtype holds exactly."""
    if not dtype.is_floating_point:
        return []
    return [number for number in numbers if float(torch.tensor(number, dtype=torch.float64).to(dtype)) == number]


def _levels(values: Sequence[object]) -> list[object]:
    """The values, and the element's own often enough for a prime number in all."""
    levels = [*values, OWN]
    while any(len(levels) % factor == 0 for factor in range(2, len(levels))):
        levels.append(OWN)
    return levels


def _level(row: Tensor, column: int, count: int) -> Tensor:
    """Rows of a column of the orthogonal array of ``count`` values."""
    return (row + (1 + column % (count - 1)) * (row // count)) % count


def _like(part: Tensor, found: Groups, value: object) -> Tensor | None:
    """What a marker stands for; None for a value."""
    if value is FIRST:
        return _first(part, found)
    if value is NEGATIVE:
        return -part.abs() - 1
    return part.abs() + 1 if value is POSITIVE else None


def _first(out: Tensor, found: Groups) -> Tensor:
    """In each place the first element of its group."""
    table = torch.zeros(int(found.group.max()) + 1, dtype=out.dtype)
    table[found.group[found.place == 0]] = out[found.place == 0]
    return table[found.group]


def _exact(value: object, like: Tensor) -> Tensor:
    """A value in a dtype, the sign of a NaN included, which a cast may drop."""
    wide = torch.tensor(value, dtype=torch.float64 if like.is_floating_point() else like.dtype)
    number = wide.to(like.dtype)
    if like.is_floating_point() and like.dtype.itemsize > 1:
        return torch.copysign(number, torch.copysign(torch.ones_like(wide), wide).to(like.dtype))
    return number


def _with_room(case: Case, levels: int) -> Case:
    """The case at sizes with room for each pair in its largest input or result; sizes that are equal stay equal.

    Of three dims two have room for each pair, so that an operand without the first has them all. Sizes double until
    there is room, and only as long as results stay small: what pairs or combines elements grows faster than its inputs.
    """
    found = [leaf for leaf in answer(case) or [] if isinstance(leaf, Tensor)]
    largest = max([*case.args, *found], key=Tensor.numel)
    dims = sum(size > 1 for size in largest.shape)
    if not dims or largest.numel() >= levels**2:
        return case
    side = levels if dims == 3 else next(side for side in range(2, levels**2 + 1) if side**dims >= levels**2)

    def grown(tensor: Tensor, times: int) -> Tensor:
        for axis, size in enumerate(tensor.shape):
            if 1 < size < side:
                tensor = resized(tensor, axis, min(times * size, side))
        return tensor

    out, times = case, 1
    while times * min(size for size in largest.shape if size > 1) < side:
        times *= 2
        try:
            larger = case.replace(inputs={name: grown(tensor, times) for name, tensor in case.inputs.items()})
        except NotImplementedError:  # of a dtype that eager hardly has anything for
            break
        found = answer(larger)
        if found is not None:
            if sum(leaf.numel() for leaf in found if isinstance(leaf, Tensor)) > LARGEST_RESULT:
                break
            out = larger
    return out


def _magnitudes(case: Case) -> Case:
    """All numbers of either sign, their logarithms even from 1 to 1e4; whole ones where there are no others.

    Half of the numbers are of the size of those in the same places of another input: what is done for operands that
    are near to each other is hardly met by numbers drawn apart.
    """
    floats = any(_is_float(tensor.dtype) for tensor in case.args)
    places: dict[torch.Size, Tensor] = {}

    def drawn(tensor: Tensor) -> Tensor:
        if tensor.dtype == torch.bool or not tensor.numel() or floats != _is_float(tensor.dtype):
            return tensor
        info = torch.finfo(tensor.dtype) if floats else torch.iinfo(tensor.dtype)
        parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
        most = min(MAGNITUDE, math.sqrt(info.max) if floats else info.max)
        place = torch.rand(parts.shape, dtype=torch.float64)
        if (beside := places.setdefault(parts.shape, place)) is not place:
            beside = (beside + NEAR * (2 * torch.rand(parts.shape, dtype=torch.float64) - 1)).clamp(0, 1)
            place = torch.where(torch.rand(parts.shape) < 0.5, beside, place)
        sizes = torch.exp(place * math.log(most))
        signs = torch.where(torch.rand(parts.shape) < 0.5, -1.0, 1.0) if info.min < 0 else 1.0
        out = (sizes * signs).to(parts.dtype)
        return torch.view_as_complex(out) if tensor.is_complex() else out

    return change_inputs(case, drawn, "no input of numbers")


def _halves(tensor: Tensor) -> Tensor:
    """Whole numbers and those halfway between two, of either sign, in an order that is drawn."""
    if not tensor.numel() or not _is_float(tensor.dtype):
        return tensor
    parts = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    steps = torch.arange(parts.numel()) % (4 * MOST_HALVES + 1) - 2 * MOST_HALVES
    numbers = steps[torch.randperm(parts.numel())].reshape(parts.shape).to(torch.float64) / 2
    if not bool((parts < 0).any()):  # what has no sign keeps none
        numbers = numbers.abs()
    return torch.view_as_complex(numbers.to(parts.dtype)) if tensor.is_complex() else numbers.to(parts.dtype)


def _shifted(tensor: Tensor) -> Tensor:
    """The same numbers beside one that is larger by half the digits of the dtype."""
    if not tensor.numel() or not _is_float(tensor.dtype):
        return tensor
    info = torch.finfo(tensor.dtype)
    sizes = torch.view_as_real(tensor.resolve_conj()).abs() if tensor.is_complex() else tensor.abs()
    largest = float(sizes.to(torch.float64).nan_to_num(0, 0, 0).max()) or 1.0
    far = 2.0 ** (math.ceil(math.log2(largest)) - math.floor(math.log2(info.eps) / 2))
    return tensor if far > info.max / 4 else tensor + far


def _is_float(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


_NO_FLOATS = "no input of floats"

_variant = partial(Variant, try_eager=False)
special = Placed(special_values, _NO_FLOATS)
SPECIAL = _variant("NaN, infinities and zeros of both signs, subnormals, extremes, in pairs.", special)
UNIFORM = _variant(
    "Rows that are summed, sorted or scanned: wholly -inf, NaN or one number.",
    Placed(uniform_values, "no input of numbers", whole=True),
)
extremes_placed = Placed(extremes, "no input of numbers", more=ends_of_conversions)
EXTREMES = _variant(
    "The largest and smallest finite numbers of the dtype, integers too, and of the dtypes that it is converted to.",
    extremes_placed,
)
SMALL = _variant(
    "Numbers next to 0 and 1, where differences cancel and one plus a number is one.", Placed(small_numbers, _NO_FLOATS)
)
MAGNITUDES = _variant("Numbers of all magnitudes from 1 to 10,000, of both signs.", _magnitudes)
HALVES = of_each_input(
    "Whole numbers and those halfway between two, which are rounded, raised and looked up in ways of their own.",
    _halves,
    _NO_FLOATS,
    try_eager=False,
)
SHIFTED = of_each_input(
    "Numbers far from 0 and near each other, whose squares cancel.", _shifted, _NO_FLOATS, try_eager=False
)
