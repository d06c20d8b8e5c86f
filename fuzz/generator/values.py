"""Input tensors: contents that keep numerics finite, and the layouts a compiler must not assume away."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_lazy_bits
from torchstone.conformance.variants.values import special_values
from torchstone.fuzz.generator.choices import Choices

DTYPES = (
    (torch.float32, 60),
    (torch.int64, 8),
    (torch.bool, 4),
    (torch.float64, 6),
    (torch.float16, 4),
    (torch.bfloat16, 4),
    (torch.int32, 4),
    (torch.int16, 2),
    (torch.int8, 2),
    (torch.uint8, 3),
    (torch.complex64, 3),
)
"""The dtypes a program starts from, simplest first, with their weights."""

STORED = (
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
    *(torch.uint16, torch.uint32, torch.uint64),
)
"""Dtypes in which eager hardly computes: programs move such numbers, and convert them."""
STORED_WEIGHT = 3
"""The weight of each beside those of ``DTYPES``, for an op that takes it."""

ANY = (-4.0, 4.0)
"""The bounds of an op that takes all numbers. Within them most contents are drawn."""

MIXED = 30
"""Of a hundred inputs of any numbers, how many have numbers of every kind."""

SPECIAL_ROWS = {False: 5, True: 30}
"""Of a hundred inputs, how many have a row of one number: without and with special values."""

SHARED = 4
"""Of a hundred inputs, how many lie in the memory of an earlier one, where one has room."""

LAYOUTS = (("contiguous", 58), ("transposed", 14), ("strided", 12), ("offset", 8), ("lazy", 2), ("expanded", 6))
LARGEST_SPECIAL = 1e4
"""Finite numbers beyond it are of the programs of all magnitudes."""
MANY = 2
"""One element in so many is special, where many are."""
SCALES = (2.0**-10, 2.0**-20, 2.0**-30)
SIZES = ((2, 25), (3, 22), (1, 14), (4, 12), (5, 9), (8, 8), (7, 5), (0, 5))
RANKS = ((2, 35), (1, 25), (3, 20), (0, 10), (4, 10))
NUMEL = 8192
"""Elements of a tensor, at most."""
LONG = 10
"""Of a hundred shapes, how many have a long dim: its size is beside a power of two, at which vectors and blocks end."""
EXPONENTS = (3, 12)
"""Of these powers, the first and the last."""
LARGE = 4
"""Of a hundred shapes, how many are long in every dim, as far as there is room: products are computed in blocks."""
LARGE_EXPONENTS = (3, 6)
MUCH = 64
"""Elements beyond which there are several vectors."""


def draw_shape(choices: Choices, ranks: Sequence[int] | None = None) -> tuple[int, ...]:
    """Draw a shape, of one of the given ranks if any are given; 0 and 1 are among the sizes."""
    allowed = [(rank, weight) for rank, weight in RANKS if ranks is None or rank in ranks]
    allowed += [(rank, 10) for rank in ranks or () if rank not in dict(RANKS)]
    drawn = tuple(choices.weighted(SIZES) for _ in range(choices.weighted(allowed)))
    if drawn and choices.chance(LONG):
        return _with_long_dim(choices, drawn)
    if len(drawn) > 1 and choices.chance(LARGE):
        return draw_large(choices, len(drawn))
    return drawn[:1] * len(drawn) if len(drawn) > 1 and choices.chance(20) else drawn  # dims that may be mistaken


def kind_of_shape(shape: Sequence[int]) -> int | str:
    """What a shape is to an op: its rank, or that nothing is in it, or much."""
    count = math.prod(shape)
    return "empty" if not count else "large" if count > MUCH else len(shape)


def large_size(choices: Choices) -> int:
    """Draw a size beside a power of two, as a dim has of which several are long."""
    power = max(choices.integer(*LARGE_EXPONENTS) for _ in range(2))
    return 2**power + choices.pick((1, 0, -1))


def draw_large(choices: Choices, rank: int) -> tuple[int, ...]:
    """Draw a shape that is long in every dim, as far as there is room: the last ones have it first."""
    out: list[int] = []
    for _ in range(rank):
        out.append(min(large_size(choices), max(NUMEL // math.prod(out), 1)))
    return tuple(reversed(out))


def _with_long_dim(choices: Choices, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with a long dim, and with others that are short enough for it."""
    size = 2 ** choices.integer(*EXPONENTS) + choices.pick((1, 0, -1))
    at = choices.integer(0, len(shape) - 1)
    out = [1] * len(shape)
    out[at] = size
    for other, wanted in enumerate(shape):
        if other != at:
            out[other] = min(max(wanted, 1), NUMEL // math.prod(out))
    return tuple(out)


def draw_contents(
    choices: Choices,
    size: Sequence[int],
    dtype: torch.dtype,
    low: float = ANY[0],
    high: float = ANY[1],
    distinct: bool = False,
) -> Tensor:
    """Draw a contiguous tensor with elements in ``low..high``; ``distinct`` asks for no two equal elements.

    Half of the floating-point tensors hold multiples of a quarter: exact in every dtype, easy to read in a
    reproducer, and full of the ties and cancellations that random fractions never show. One in ten is near 0.
    """
    generator = torch.Generator().manual_seed(choices.integer(0, 2**31 - 1))
    count = int(torch.Size(size).numel())
    if distinct:
        order = torch.randperm(count, generator=generator).to(torch.float64)
        return (order - count // 2 if dtype.is_signed else order).to(dtype).reshape(tuple(size))
    if dtype == torch.bool:
        return torch.randint(0, 2, tuple(size), generator=generator).bool()
    if not dtype.is_floating_point and not dtype.is_complex:
        floor = -9 if dtype.is_signed else 0
        first, last = max(int(low * 2.25), floor), min(int(high * 2.25), 9)
        return torch.randint(first, max(first, last) + 1, tuple(size), generator=generator).to(dtype)
    if dtype.is_complex:
        parts = torch.empty((*size, 2), dtype=torch.float64).uniform_(low, high, generator=generator)
        return torch.view_as_complex(parts).to(dtype)
    drawn = torch.empty(tuple(size), dtype=torch.float64).uniform_(low, high, generator=generator)
    grid = (drawn * 4).round() / 4
    # A quarter that rounds onto the bound itself may leave an open domain, such as that of log.
    drawn = grid.where((grid > low) & (grid < high), drawn) if choices.chance(50) else drawn
    if low <= 0 <= high and choices.chance(10):  # near 0 many formulas cancel: exp(x) - 1, log(1 + x)
        drawn = drawn * choices.pick(SCALES)
    return drawn.to(dtype)


def draw_magnitudes(choices: Choices, size: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Draw numbers of both signs, their logarithms even from 1e-6 to 1e6, or what squares in a half.

    Whole numbers are beside powers of two, up to the largest that there is.
    """
    generator = torch.Generator().manual_seed(choices.integer(0, 2**31 - 1))
    if not dtype.is_floating_point and not dtype.is_complex:
        limit = torch.iinfo(dtype)
        powers = torch.randint(0, limit.max.bit_length() + 1, tuple(size), generator=generator)
        beside = torch.randint(-1, 2, tuple(size), generator=generator)
        # The largest is 2 ** bits - 1; in 64 bits that wraps to what it is.
        numbers = 2**powers + torch.where(powers == limit.max.bit_length(), -1, beside)
        signs = torch.randint(0, 2, tuple(size), generator=generator) * 2 - 1 if dtype.is_signed else 1
        return (numbers * signs).to(dtype)
    shape = (*size, 2) if dtype.is_complex else tuple(size)
    largest = math.log10(min(1e6, math.sqrt(torch.finfo(dtype).max)))
    sizes = 10 ** torch.empty(shape, dtype=torch.float64).uniform_(-6, largest, generator=generator)
    signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return torch.view_as_complex(sizes * signs).to(dtype) if dtype.is_complex else (sizes * signs).to(dtype)


def draw_mixed(choices: Choices, size: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Draw numbers of every kind beside each other: multiples of a quarter, magnitudes up to 8,000, whole numbers up to
    a hundred, zeros of both signs. Each is a question of its own to an op that takes its operands element by element.
    """
    generator = torch.Generator().manual_seed(choices.integer(0, 2**31 - 1))
    if not dtype.is_floating_point and not dtype.is_complex:
        large = draw_magnitudes(choices, size, dtype)
        return large.where(torch.rand(tuple(size), generator=generator) < 0.3, draw_contents(choices, size, dtype))
    shape = (*size, 2) if dtype.is_complex else tuple(size)
    largest = math.log10(min(8e3, math.sqrt(torch.finfo(dtype).max)))
    kinds = torch.randint(0, 10, shape, generator=generator)
    drawn = torch.randint(-16, 17, shape, generator=generator).to(torch.float64) / 4
    drawn = drawn.where(
        kinds > 3, 10 ** torch.empty(shape, dtype=torch.float64).uniform_(-6, largest, generator=generator)
    )
    drawn = drawn.where(kinds > 0, torch.randint(0, 101, shape, generator=generator).to(torch.float64))
    drawn = drawn.where(kinds < 9, 0.0) * (torch.randint(0, 2, shape, generator=generator) * 2 - 1)
    return torch.view_as_complex(drawn).to(dtype) if dtype.is_complex else drawn.to(dtype)


def draw_row(choices: Choices, tensor: Tensor, specials: bool) -> Tensor:
    """Return a floating-point tensor of which one row along a drawn dim, or all, is one number: 0, or its first one.

    ``specials``: infinities and nan, too. Rows of this kind divide by zero, and have no maximum of their own.
    """
    if not tensor.dtype.is_floating_point or tensor.numel() == 0:
        return tensor
    drawn = tensor.clone()
    dim = choices.integer(0, tensor.dim())  # the last: all of it
    row = drawn if dim == tensor.dim() else drawn.select(dim, choices.integer(0, tensor.shape[dim] - 1))
    given = choices.pick((None, 0.0, -float("inf"), float("nan"), float("inf")) if specials else (None, 0.0))
    row.fill_(row.flatten()[0] if given is None else torch.tensor(given).to(row.dtype))
    return drawn


def insert_specials(choices: Choices, tensor: Tensor) -> Tensor:
    """Return a floating-point tensor with, mostly, one to three elements made special, or many; others as they are."""
    if not tensor.dtype.is_floating_point or tensor.numel() == 0 or choices.chance(20):
        return tensor
    flat = tensor.flatten()
    numbers = [n for n in special_values(tensor.dtype) if not LARGEST_SPECIAL < abs(n) < math.inf]
    count = max(1, flat.numel() // MANY) if choices.chance(70) else choices.integer(1, 3)
    generator = torch.Generator().manual_seed(choices.integer(0, 2**31 - 1))
    places = torch.randperm(flat.numel(), generator=generator)[:count]
    order = torch.randperm(len(numbers), generator=generator).tolist()
    for at, place in enumerate(places.tolist()):  # each as often as the others
        flat[place] = torch.tensor(numbers[order[at % len(numbers)]]).to(flat.dtype)
    return flat.reshape(tensor.shape)


def draw_part(choices: Choices, wholes: Sequence[Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor | None:
    """Return some elements that lie together in the memory of one of ``wholes``; None where none has so many."""
    count = torch.Size(shape).numel()
    fitting = [t for t in wholes if t.dtype == dtype and t.numel() >= count > 0 and t.is_contiguous()]
    fitting = [t for t in fitting if not (t.is_neg() or t.is_conj())]
    if not fitting:
        return None
    row = choices.pick(fitting).view(-1)
    first = choices.integer(0, row.numel() - count)
    return row[first : first + count].view(tuple(shape))


def draw_layout(choices: Choices, tensor: Tensor, expand: bool = True, layout: str | None = None) -> Tensor:
    """Return the same tensor in a drawn memory layout, or lazily negated; ``expand`` allows a dim of stride 0.

    ``layout`` is one of ``LAYOUTS`` if it is drawn already.
    """
    layout = choices.weighted(LAYOUTS if expand else LAYOUTS[:-1]) if layout is None else layout
    if layout == "transposed" and tensor.dim() >= 2:
        order = choices.shuffled(list(reversed(range(tensor.dim()))))
        back = [order.index(dim) for dim in range(tensor.dim())]
        return tensor.permute(order).contiguous().permute(back)
    if layout == "strided" and tensor.dim() >= 1:
        return torch.stack([tensor, torch.zeros_like(tensor)], dim=-1)[..., 0]
    if layout == "offset" and tensor.dim() >= 1:
        return torch.cat([torch.zeros_like(tensor[:1]), tensor])[tensor[:1].shape[0] :]
    if layout == "lazy" and (tensor.is_complex() or tensor.dtype.is_floating_point) and tensor.dtype not in STORED:
        return tensor.conj_physical().conj() if tensor.is_complex() else flip_lazy_bits(tensor.neg(), neg=True)
    if layout == "expanded" and tensor.dim() >= 1 and tensor.shape[0] > 0:
        return tensor[:1].clone().expand(tensor.shape)
    return tensor


def comparable(tensor: Tensor) -> Tensor:
    """The same numbers in a dtype that eager compares."""
    return tensor.to(torch.float64) if tensor.dtype in STORED else tensor


def within(tensor: Tensor, bounds: tuple[float, float]) -> Tensor:
    """Which elements are in an open domain; a side of it that is that of ``ANY`` is none. A tensor of booleans.

    Of complex numbers and of booleans all are.
    """
    if tensor.dtype.is_complex or tensor.dtype == torch.bool:
        return torch.ones(tensor.shape, dtype=torch.bool)
    numbers, (low, high) = comparable(tensor), bounds
    above = numbers > low if low != ANY[0] else torch.ones_like(numbers, dtype=torch.bool)
    return above & (numbers < high) if high != ANY[1] else above
