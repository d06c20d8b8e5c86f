"""The variants ``long`` and ``large``: one dim of some thousand elements, the one along which they are put together.

A sum of a dozen numbers is right in nearly any way of adding them; of two thousand it is not. In 16 bits it stands
still once the next number is less than half the last place of what is there. ``large`` is about loops: those that are
cut into blocks and spread over threads, and counters of 16 bits.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch import fake_tensors
from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves, map_leaves
from torchstone.conformance.program.program import Program
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import answer, resized, taken

LENGTH = 2053
"""Elements along the dim: a prime, past 2048, where whole numbers end to have places of their own in float16."""
LARGE_LENGTHS = (70_001, 4_099)
"""Those of ``large``: past 2**16, and past 4096 where so many are too many for the input or the op. Both are prime."""
FACTORS = (10_007, 1_009, 101, 11)
"""By which a number among the arguments is larger: of what has no input with dims."""
SIDES = (131, 43, 17)
"""Sizes of all dims, for two dims, three and four: primes next to a multiple of what tiles and vectors are."""
MOST = 1 << 17
"""Elements of all inputs."""
HUGE_SIDES = (262_147, 521, 67, 23)
"""Sizes of all dims of ``huge``, for one dim, two, three and four: primes, of a quarter million elements together.

The oracle runs a program that sums up to 200 times where numbers differ: eight times as many elements are minutes.
"""
MOST_HUGE = 1 << 21
"""Elements of all inputs of these, and of each result."""
MOST_WORK = 1 << 31
"""Multiplications and additions of products of matrices and convolutions: a tenth of a second or two."""

MOST_RESULTS = LENGTH
"""Results, of ops that give one for each element of a dim."""
ROOM = 1 << 24
"""Elements of a result that is computed at all, to see how large it is."""

_Dims = tuple[tuple[int, int], ...]
"""(which input, which dim)."""


def long(case: Case, length: int = LENGTH) -> Case:
    """The case with the dim made long whose results grow least by it: a reduction's own, if eager takes that.

    Where results are as large beside the input for several dims, the one along which most of them depend on the first
    element: a scan's. Where that is too many elements for every dim, the largest size becomes 2 before.
    """
    if (found := _longest(case, length)) or (found := _longest(_cut(case), length)):
        return found
    raise NotApplicable("no dim can be long")


def _cut(case: Case) -> Case:
    """The case with 2 in place of the largest size, wherever that is."""
    largest = max((size for tensor in case.args for size in tensor.shape), default=0)

    def cut(tensor: Tensor) -> Tensor:
        return tensor[tuple(slice(2 if size == largest else None) for size in tensor.shape)].clone()

    return case.replace(inputs={name: cut(tensor) for name, tensor in case.inputs.items()}) if largest > 2 else case


def _longest(case: Case, length: int) -> Case | None:
    best: tuple[tuple[float, int], Case] | None = None
    for dims in _choices(case.args, length):
        if sum(_numel(case.args[i], [d for j, d in dims if j == i], length) for i in range(len(case.args))) > MOST:
            continue
        grown = _grown(case, dims, length)
        if (found := answer(grown) if fits(grown) else None) is None:
            grown = grown.replace(program=_told(case.program, case.args[dims[0][0]].shape[dims[0][1]], length))
            found = answer(grown) if grown.program != case.program and fits(grown) else None
        if found is None or len(found) > MOST_RESULTS:
            continue
        size = sum(leaf.numel() for leaf in found if isinstance(leaf, Tensor))
        if size > MOST:
            continue
        number = dims[0][0]
        rank = (round(size / grown.args[number].numel(), 2), -_dependent(grown, found, number))
        if best is None or rank < best[0]:
            best = rank, grown
    return best[1] if best else None


def large(case: Case) -> Case:
    """The case with one dim of the largest length that there is room for: a scan's, or a reduction's own.

    Every other sample has all its dims larger instead, if there are two: a product of matrices is then worth tiles.
    What is made of numbers alone, as ``arange`` is, is given a larger one.
    """
    if not any(tensor.dim() for tensor in case.args):
        return _of_larger_number(case)
    if case.index % 2 and (wide := _wide(case)) is not None:
        return wide
    for length in LARGE_LENGTHS:
        with contextlib.suppress(NotApplicable):
            return long(case, length)
    raise NotApplicable("no dim can be as long")


def _of_larger_number(case: Case) -> Case:
    """The case with one number among its arguments as much larger as makes its results large."""
    numbers = [value for call in case.program.calls for value in leaves((call.args, call.kwargs))]
    places = [place for place, value in enumerate(numbers) if type(value) in (int, float) and value]
    for factor, place in itertools.product(FACTORS, places):
        count = itertools.count()

        def leaf(value: Any, factor: int = factor, place: int = place, count: Iterator[int] = count) -> Any:
            return value * factor if next(count) == place else value

        larger = case.replace(program=case.program.rewrite(lambda call, leaf=leaf: call.map_arguments(leaf)))
        found = answer(larger) if fits(larger, room=MOST, left_to_eager=False) else None
        if found and sum(leaf.numel() for leaf in found if isinstance(leaf, Tensor)) >= LARGE_LENGTHS[-1]:
            return larger
    raise NotApplicable("no number that makes a result large")


def _wide(case: Case) -> Case | None:
    """The case with all its dims of the largest size that there is room for; None where there is none for two dims."""
    for side in SIDES:
        sizes = [[side if 1 < size < side else size for size in tensor.shape] for tensor in case.args]
        two = max((sum(size == side for size in shape) for shape in sizes), default=0) > 1
        if two and sum(map(math.prod, sizes)) <= MOST:
            wide = case.replace(inputs={name: _widened(tensor, side) for name, tensor in case.inputs.items()})
            found = answer(wide) if fits(wide) else None
            if found and sum(leaf.numel() for leaf in found if isinstance(leaf, Tensor)) <= MOST:
                return wide
    return None


def huge(case: Case) -> Case:
    """The case with every size from 2 on grown, to a quarter million elements, where its op takes time in proportion.

    Compilers take their time over such programs: loops are tiled, fused by rows and unrolled, and run on threads.
    """
    rank = max((sum(size > 1 for size in tensor.shape) for tensor in case.args), default=0)
    if not 0 < rank <= len(HUGE_SIDES):
        raise NotApplicable("no size to grow, or too many")
    side = HUGE_SIDES[rank - 1]
    grown = case.replace(inputs={name: _widened(tensor, side) for name, tensor in _small(case, side).items()})
    if not _may_be_asked(grown):
        sizes = {size for tensor in case.args for size in tensor.shape if size > 1}
        program = functools.reduce(lambda program, size: _told(program, size, side), sorted(sizes), case.program)
        grown = grown.replace(program=program)
        if program == case.program or not _may_be_asked(grown):
            raise NotApplicable("eager takes no such sizes, or takes long")
    return grown


def _small(case: Case, side: int) -> dict[str, Tensor]:
    """The inputs, where they are few elements grown."""
    if sum(math.prod(side if size > 1 else size for size in tensor.shape) for tensor in case.args) > MOST_HUGE:
        raise NotApplicable("its inputs would be too large")
    return dict(case.inputs)


def _may_be_asked(case: Case) -> bool:
    """Whether eager takes a large case, and has no more to do than there is time for."""
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    if not fits(case, counter, room=MOST_HUGE):
        return False
    return counter.get_total_flops() <= MOST_WORK and taken(case)


def _choices(args: tuple[Tensor, ...], length: int) -> Iterator[_Dims]:
    """Which dims may be made long together: of one place in inputs of one shape, or of one size anywhere."""
    seen: set[_Dims] = set()
    for number, tensor in enumerate(args):
        for dim, size in enumerate(tensor.shape):
            if size < 2 or size >= length or not tensor.numel():
                continue
            same = tuple((i, dim) for i, other in enumerate(args) if other.shape == tensor.shape)
            every = tuple((i, d) for i, other in enumerate(args) for d, n in enumerate(other.shape) if n == size)
            for dims in (same, every, ((number, dim),)):
                first = ((number, dim), *(pair for pair in dims if pair != (number, dim)))
                if frozenset(dims) not in {frozenset(other) for other in seen}:
                    seen.add(dims)
                    yield first


def _numel(tensor: Tensor, dims: list[int], length: int) -> int:
    """How many elements there are with these dims long."""
    return math.prod(length if d in dims else size for d, size in enumerate(tensor.shape))


def _grown(case: Case, dims: _Dims, length: int) -> Case:
    inputs = dict(case.inputs)
    for number, name in enumerate(inputs):
        for dim in (d for i, d in dims if i == number):
            inputs[name] = _lengthened(inputs[name], dim, length)
    return case.replace(inputs=inputs)


def _told(program: Program, size: int, length: int) -> Program:
    """The program with the length in place of a size among its lists of sizes: the shape that is normalized.

    A list with several of that size, which would be gigabytes (those of a cube that is expanded), stays as it is.
    """

    def item(value: Any) -> Any:
        return length if type(value) is int and value == size else value

    def argument(value: Any) -> Any:
        if not isinstance(value, tuple | list):
            return value
        told = map_leaves(value, item)
        return told if math.prod(each for each in told if type(each) is int) <= ROOM else value

    return program.rewrite(lambda call: call.map_arguments(argument, nested=False))


def fits(
    case: Case, *modes: contextlib.AbstractContextManager[Any], room: int = ROOM, left_to_eager: bool = True
) -> bool:
    """Whether no step gives more elements than there is ``room`` for: a list of the same number may have been strides.

    A case that fake tensors do not take is ``left_to_eager``, or does not fit. ``modes`` are entered around it.
    """
    sizes = _Sizes(room)
    try:
        with fake_tensors.refusals_unlogged(), fake_tensors.FakeTensorMode() as fake, torch.no_grad():
            args = [fake.from_tensor(arg) for arg in case.args]
            with contextlib.ExitStack() as entered:
                for mode in (*modes, sizes):
                    entered.enter_context(mode)
                case.program(*args)
    except Exception:
        return left_to_eager and sizes.largest <= room
    return True


def results_of(case: Case) -> int:
    """How many tensors its steps give, by fake tensors. Raises whatever they raise."""
    with fake_tensors.refusals_unlogged(), fake_tensors.FakeTensorMode() as fake, torch.no_grad():
        args = [fake.from_tensor(arg) for arg in case.args]
        with _Sizes(ROOM) as counter:
            case.program(*args)
    return counter.results


class _Sizes(ComputingMode):
    """Raises at the first result that is larger than there is room for."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room, self.largest, self.results = room, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        found = [leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        self.results += len(found)
        self.largest = max([self.largest, *found])
        if self.largest > self.room:
            raise NotApplicable("a result would be too large")
        return result


def _lengthened(tensor: Tensor, dim: int, length: int) -> Tensor:
    """The elements again and again, of floats each time a little smaller: few of them are equal."""
    longer = resized(tensor, dim, length)
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return longer
    shape = [length if d == dim else 1 for d in range(tensor.dim())]
    return (longer * (1 - torch.arange(length, dtype=torch.float64) / (4 * length)).reshape(shape)).to(tensor.dtype)


def _widened(tensor: Tensor, side: int) -> Tensor:
    for dim, size in enumerate(tensor.shape):
        if 1 < size < side:
            tensor = _lengthened(tensor, dim, side)
    return tensor


def _dependent(case: Case, found: list[object], number: int) -> int:
    """How many of the results are others when the first element of an input is larger than all."""
    name = list(case.inputs)[number]
    tensor = case.inputs[name].clone()
    corner = tensor[(0,) * tensor.dim()]
    sizes = tensor.real if tensor.is_complex() else tensor
    corner.fill_(not corner if tensor.dtype == torch.bool else sizes.nan_to_num().max() + 1)
    changed = answer(case.replace(inputs={**case.inputs, name: tensor})) or []
    return sum(
        int((a != b).sum())
        for a, b in zip(found, changed, strict=False)
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape == b.shape
    )


LONG = Variant("One dim of two thousand elements: the one that is summed or scanned, if any is.", long)
LARGE = Variant("One dim of 70,001 elements, or all dims of 131: past 16-bit counters, blocks of loops, tiles.", large)
HUGE = Variant("A quarter million elements and more: what compilers take their time for.", huge)
