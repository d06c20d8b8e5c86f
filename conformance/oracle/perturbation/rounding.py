"""The rounding model: what a program's result may be when every inexact step is rounded somehow.

A run of the float64 twin in which each ATen op is taken apart by PyTorch's own decompositions, and each step's result
moved by up to one ULP of the narrower dtype wherever that dtype could not hold it exactly. Steps that accumulate (sums,
contractions, norms, solvers) also have their operands moved, by an amount that grows with the length of the
accumulation: that stands for another order of the additions, and keeps the magnitudes in view when the terms cancel
(Higham and Mary, A new approach to probabilistic rounding error analysis, 2019). Steps that are exact in any precision
(comparison, rounding to an integer, moving data) get no noise, so a value exactly on a tie stays on it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode, unseen
from torchstone.compiler._torch.operators import functional_form, schema_of
from torchstone.conformance.oracle.exactness.narrowest_step import CallPrecision
from torchstone.conformance.oracle.exactness.steps import combines_by_argument, never_rounds
from torchstone.conformance.oracle.op_traits.order_of_terms import STORES_PARTIAL_RESULTS
from torchstone.conformance.oracle.op_traits.references import WITHOUT_FLOAT64
from torchstone.conformance.oracle.op_traits.rounding import ADDS_IN_FLOAT32, STABLE_BY_NORM, TRANSCENDENTAL
from torchstone.conformance.oracle.overflow.products import Factors
from torchstone.conformance.oracle.own_fault import raise_own_fault
from torchstone.conformance.oracle.perturbation.accumulation import (
    accumulates,
    adds_only,
    arguments_of,
    error_growth,
    length_of,
    movable,
    results_of,
    transform_length,
)
from torchstone.conformance.oracle.perturbation.decompositions import agree, decompositions, lost_by_angles
from torchstone.conformance.oracle.perturbation.draws import DrawStream, Streams
from torchstone.conformance.oracle.pytree import leaves_of, map_leaves
from torchstone.conformance.oracle.random.replay import call_and_see_rng, may_draw
from torchstone.conformance.oracle.tolerances import real_dtype
from torchstone.conformance.oracle.ulp import precision, representable
from torchstone.conformance.oracle.writes import telling_overload, written_by

MAX_DEPTH = 20

CheckedDecompositions: TypeAlias = dict[tuple[Any, ...], Any]
"""Which decompositions stand for their ops, in more steps than one: by place in the program, op, shapes and dtypes. And
what else is found of ops whatever the numbers of their operands (scaling.py)."""


class RandomRounding(ComputingMode):
    """Runs what is inside it with the roundings of ``dtype`` drawn at random: each to one side or the other, by
    ``scale`` ULP, or all to the side ``direction`` says. The same seed draws the same. With ``draws`` each is moved by
    what these say, in ULPs. ``on_grid``: and to a number of the dtype then. Runs of one program on inputs that differ
    by no more than rounding may share what they have ``found``. ``calls`` tells in which dtype each call of a program
    is rounded, where not all are in one. ``stacked``: many runs are made at once, along a first dim."""

    def __init__(
        self,
        dtype: torch.dtype,
        seed: int,
        scale: float = 1.0,
        direction: int = 0,
        found: CheckedDecompositions | None = None,
        draws: DrawStream | Streams | None = None,
        on_grid: bool = False,
        calls: Callable[[int], CallPrecision] | None = None,
        stacked: bool = False,
    ) -> None:
        super().__init__()
        self.calls = calls
        self.draws = draws
        self.stacked = stacked
        self.on_grid = on_grid
        self.found = {} if found is None else found
        self.place: tuple[int, ...] = (0,)
        self.scale = scale
        self.direction = direction
        self.depth = 0
        self.sums = 0
        self.moves = 0
        """Steps that take numbers from other places, or leave some out."""
        self.performed = 0
        self.in_float32 = False
        self.generator = torch.Generator().manual_seed(seed)
        self._compute_in(dtype)

    def _compute_in(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.eps = 2.0 ** (1 - precision(dtype))
        self.halves = dtype in (torch.float16, torch.bfloat16)
        # Nothing wider than float64 tells which of its numbers are rounded: those with few bits are taken as exact.
        self.exact_in = torch.float32 if real_dtype(dtype) is torch.float64 else dtype

    def perform(self, index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of the program, in the precision that eager makes it in: see ``Program.run``."""
        step = self.calls(index) if self.calls is not None else None
        if step is None or step.dtype is None:
            return function(*args, **kwargs)
        self._compute_in(step.dtype)
        out = function(*args, **kwargs)
        if not step.converts:
            return out
        with unseen():  # the twin, which is float64 throughout, has nothing to convert
            return map_leaves(self._round, out)

    def _partial_dtype(self, func: Any) -> torch.dtype:
        """The dtype of the partial results of an accumulation: those of narrower numbers have 32 bits, by eager and by
        any compiler that is to be right, unless they are stored."""
        own = real_dtype(self.dtype)
        narrow = torch.finfo(own).bits < torch.finfo(torch.float32).bits
        return torch.float32 if narrow and not STORES_PARTIAL_RESULTS.holds(func) else own

    def _sides(self, like: Tensor) -> Tensor:
        if self.draws is not None:
            return self.draws.take(like.shape)
        if self.direction:
            return torch.full(like.shape, float(self.direction), dtype=torch.float64)
        return torch.randint(0, 2, like.shape, generator=self.generator).to(torch.float64) * 2.0 - 1.0

    def _move(self, value: Tensor, ulps: float, uneven: bool = False) -> Tensor:
        """Each number moved by ``ulps`` times the scale, give or take a quarter when ``uneven``: two terms that cancel
        and are moved to the same side still show that they cancelled. Infinities and NaN stay as they are."""
        size: Any = ulps * self.scale * self.eps
        if uneven and self.draws is None:
            size = size * (0.75 + 0.5 * torch.rand(value.shape, generator=self.generator, dtype=torch.float64))
        if value.is_complex():
            sides = self._sides(value), self._sides(value)
            moved = value + value.abs() * size * torch.complex(*sides)
        else:
            moved = value * (1.0 + size * self._sides(value))
        finite = torch.isfinite(value)
        beyond = finite & (value.abs() > torch.finfo(torch.float64).max / 2)
        if bool(beyond.any()):  # float64's own largest numbers go down only, by sizes that tell two of them apart
            size = size * (0.25 + torch.rand(value.shape, generator=self.generator, dtype=torch.float64))
            moved = torch.where(beyond, value * (1.0 - size), moved)
        stays = value
        if value.is_complex() and not bool(finite.all()):  # beside an infinity the other part rounds by itself
            parts = (
                (part, part * (1.0 + size * side)) for part, side in zip((value.real, value.imag), sides, strict=True)
            )
            stays = torch.complex(*(torch.where(torch.isfinite(part), other, part) for part, other in parts))
        return torch.where(finite, moved, stays)

    def _round(self, value: Any, inexact: Tensor | None = None) -> Any:
        """A number as the dtype may have it; ``inexact`` is where it has been rounded although it has few digits."""
        if not movable(value):
            return value
        with unseen():  # by the modes around this one: what moves a number is no step of the program
            exact = representable(value, self.exact_in)
            if inexact is not None:
                exact &= ~inexact
            moved = torch.where(exact, value, self._lose_digits(value, self._move(value, 1.0)))
            return self._to_grid(moved) if self.on_grid else moved

    def _lose_digits(self, value: Tensor, moved: Tensor) -> Tensor:
        """``moved``, but where a real number is subnormal in the dtype, whose units have one size there: zero at most
        is what it is rounded to, never a number of the other sign."""
        least = torch.finfo(real_dtype(self.dtype)).tiny
        small = (value.abs() < least) & (value != 0) if not value.is_complex() else None
        if small is None or not bool(small.any()):
            return moved
        far = value + (moved / value - 1.0) * least
        return torch.where(small, torch.where(far.sign() == value.sign(), far, 0.0), moved)

    def _round_where(self, value: Tensor, inexact: Tensor) -> Tensor:
        """The result of steps that are rounded already, but where it is ``inexact`` although it has few digits."""
        with unseen():
            few = inexact & representable(value, self.exact_in)
        return torch.where(few, self._round(value, few), value)

    def _to_grid(self, value: Tensor) -> Tensor:
        if value.is_complex():
            return torch.complex(self._to_grid(value.real), self._to_grid(value.imag))
        limits = torch.finfo(real_dtype(self.dtype))
        inside = torch.where(torch.isfinite(value), value.clamp(-limits.max, limits.max), value)
        rounded = inside.to(real_dtype(self.dtype)).to(value.dtype)
        # Nothing overflows: what is beyond the range by more than its rounding has no place on the grid, and stays.
        return torch.where(value.abs() > limits.max * (1 + limits.eps), value, rounded)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if not self.depth:
            self.in_float32 = self.halves and ADDS_IN_FLOAT32.holds(func)
        if never_rounds(func) and not combines_by_argument(func, args, kwargs):
            out = func(*args, **kwargs)
            self.moves += not _stays_in_place(out, leaves_of(args, kwargs))
            return out
        if may_draw(func, kwargs):
            out, drew = call_and_see_rng(func, args, kwargs)
            if drew:
                return out
            if schema_of(func).is_mutable:  # and cannot be run again on what it has written to
                return self._rounded(written_by(func, args, kwargs), out)
        if WITHOUT_FLOAT64.holds(func):
            return self._by_formula(func, args, **kwargs)
        if (floating := _converted_first(func, args, kwargs)) is not None:
            args = (self._round(floating), *args[1:])
        if schema_of(func).is_mutable:
            return self._written_to(func, args, kwargs)
        steps = self._decomposed(func, args, kwargs)
        inexact = _rounded_by(func, args)
        if steps is not NotImplemented:
            return steps if inexact is None else self._round_where(steps, inexact)
        if (same := telling_overload(func, args, kwargs)) is not None:
            return self._written_to(same, args, kwargs)
        self.performed += 1
        out = func(*args, **kwargs)
        tensors = results_of(func, args, kwargs, out)
        # Beside its numbers a factorization gives integers, which follow from what is moved: pivots, a rank, an info.
        if accumulates(func) and (STABLE_BY_NORM.holds(func) or all(map(movable, tensors))):
            self.sums += 1
            read = [leaf for leaf in leaves_of(args, kwargs) if movable(leaf)]
            out = self._accumulated(func, args, kwargs, out, read, tensors)
        return map_leaves(functools.partial(self._round, inexact=inexact), out)

    def _by_formula(self, func: Any, args: Any, out: Any = None, **kwargs: Any) -> Any:
        """An op that eager has no float64 of, by its formula: steps of float32, and a result that is rounded once."""
        own, plain = self.dtype, functional_form(func)
        self._compute_in(torch.float32 if precision(own) < precision(torch.float32) else own)
        try:
            steps = self._decomposed(plain, args, kwargs)
        finally:
            self._compute_in(own)
        steps = plain(*args, **kwargs) if steps is NotImplemented else steps
        result = self._round(steps)
        return result if out is None else out.resize_(result.shape).copy_(result)

    def _accumulated(
        self, func: Any, args: Any, kwargs: dict[str, Any], out: Any, read: list[Tensor], results: list[Tensor]
    ) -> Any:
        """What an accumulation that gave ``out`` may give in another order."""
        if adds_only(func, args, kwargs) and self._sums_exactly(read, results):
            return out
        terms = transform_length(func, args, kwargs)
        moved = self._moved_operands(func, args, kwargs, [], results, terms)
        if schema_of(func).name.endswith("fft_r2c"):
            again = self._moved_operands(func, args, kwargs, [], results, terms)
            return _as_complex_transform(func, moved, again[0][0] - moved[0][0], results[0].shape)
        return self._underflowed(func, args, kwargs, func(*moved[0], **moved[1]))

    def _underflowed(self, func: Any, args: Any, kwargs: dict[str, Any], out: Any) -> Any:
        """``out``, products of several factors, as far off as partial products that are subnormal lose digits."""
        factors = Factors.of(func, args, kwargs) if movable(out) else None
        if factors is None:
            return out
        loss = factors.lost_digits(self._partial_dtype(func))
        if out.is_complex():  # each part is off by a part of the whole
            moved = out + out.abs() * loss * torch.complex(self._sides(out), self._sides(out))
        else:
            moved = out * (1.0 + loss * self._sides(out)).clamp(min=0.0)
        return torch.where(loss > self.eps, moved, out)

    def _written_to(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """An op that writes to its arguments, run once: what it only reads is moved, what it wrote is rounded."""
        written = written_by(func, args, kwargs)
        if accumulates(func):
            self.sums += 1
            read = [leaf for leaf in leaves_of(args, kwargs) if movable(leaf) and not _holds(written, leaf)]
            if not self._sums_exactly(read, []):
                args, kwargs = self._moved_operands(func, args, kwargs, written, [])
        inexact = _rounded_by(func, args)
        return self._rounded(written, func(*args, **kwargs), inexact)

    def _rounded(self, written: list[Any], out: Any, inexact: Tensor | None = None) -> Any:
        for tensor in written:
            if movable(tensor):
                tensor.copy_(self._round(tensor, inexact))
        return map_leaves(lambda leaf: leaf if _holds(written, leaf) else self._round(leaf), out)

    def _moved_operands(
        self, func: Any, args: Any, kwargs: Any, written: list[Any], results: list[Tensor], terms: float = 1.0
    ) -> Any:
        read = [leaf for leaf in leaves_of(args, kwargs) if movable(leaf) and not _holds(written, leaf)]
        scale = error_growth(max(length_of(read, results), terms))
        if self.in_float32:
            scale *= torch.finfo(torch.float32).eps / self.eps

        def move(leaf: Any) -> Any:
            if not movable(leaf) or _holds(written, leaf):
                return leaf
            moved = self._move(leaf, scale, uneven=True)
            return moved if leaf is not matrix else moved + self._of_norm(leaf, scale)

        matrices = [leaf for leaf in read if leaf.dim() >= 2] if STABLE_BY_NORM.holds(func) else []
        matrix = matrices[0] if matrices else None
        with unseen():
            return map_leaves(move, (args, kwargs))

    def _of_norm(self, matrix: Tensor, ulps: float) -> Tensor:
        """What is added to a matrix by a method whose error is so many ULPs of the largest of its elements, in each.
        Nothing, in half of the runs: a method may do better."""
        largest = torch.where(torch.isfinite(matrix), matrix.abs(), 0.0).amax((-2, -1), keepdim=True)
        noise = self._sides(matrix)
        if matrix.is_complex():
            noise = torch.complex(noise, self._sides(matrix))
        return largest * (ulps * self.scale * self.eps) * noise * self._sides(largest).clamp(min=0.0)

    def _decomposed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """The op by its decomposition, so that each of its steps is rounded; ``NotImplemented`` when it has none.

        Nor when the op accumulates and none of the steps says so: a chain of additions fixes an order of its own. One
        whose steps all leave numbers in their places accumulates nothing, whatever its tags say.
        """
        rule = decompositions().get(func)
        if rule is None or self.depth >= MAX_DEPTH:
            return NotImplemented
        sums, moves, performed_before, place = self.sums, self.moves, self.performed, self.place
        self.depth += 1
        try:
            key = self._key(func, args, kwargs)
            if not self._stands_for(key, func, rule, args, kwargs):
                return NotImplemented
            self.place = (*place, 0)
            with self:
                steps = rule(*args, **kwargs)
            if not accumulates(func) and self.performed == performed_before + 1:
                self.found[key] = False  # from now on: the op itself is as much, and less work
            chained = accumulates(func) and self.sums == sums and self.moves > moves
            return NotImplemented if chained else steps
        except Exception as error:  # a decomposition that does not take these arguments: the op itself does
            raise_own_fault(error)
            return NotImplemented
        finally:
            self.depth -= 1
            self.place = (*place[:-1], place[-1] + 1)

    def _key(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, ...]:
        tensors = (leaf for leaf in leaves_of(args, kwargs) if isinstance(leaf, Tensor))
        return (self.place, func, *((leaf.shape[int(self.stacked) :], leaf.dtype) for leaf in tensors))

    def _stands_for(self, key: Any, func: Any, rule: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether what an op's decomposition gives may stand for what the op gives. A formula is all there is."""
        return WITHOUT_FLOAT64.holds(func) or self._agrees(key, func, rule, args, kwargs)

    def _agrees(self, key: Any, func: Any, rule: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Whether an op's decomposition gives what the op does; asked once for all the runs."""
        if key not in self.found:
            # On copies: some operators write running statistics, and their schemas do not say so.
            copies = [map_leaves(_copied, (args, kwargs)) for _ in (rule, func)]
            given = (each(*copy[0], **copy[1]) for each, copy in zip((rule, func), copies, strict=True))
            self.found[key] = agree(*given, lost=lost_by_angles(func, args))
        return self.found[key]

    def _sums_exactly(self, read: list[Tensor], results: list[Tensor]) -> bool:
        """Whether no order of the additions rounds: whole numbers whose partial sums stay small. (That a result is a
        number of the dtype says little: terms that cancel leave few bits.)"""
        with unseen():
            if not all(bool((operand == _whole(operand)).all()) for operand in read):
                return False
            largest = math.prod(max(1.0, float(operand.abs().max())) for operand in read if operand.numel())
            small = largest * length_of(read, results) <= 2.0 ** precision(self.exact_in)
            return small and all(bool(representable(result, self.exact_in).all()) for result in results)


def _converted_first(func: Any, args: Any, kwargs: dict[str, Any]) -> Tensor | None:
    """The integers that an accumulation of floating numbers is asked of, as it takes them: ``sum(x, dtype=float32)``
    "casts the input tensor to dtype before the operation" (PyTorch's documentation). None for all other calls."""
    dtype = kwargs.get("dtype")
    if not isinstance(dtype, torch.dtype) or not args or not isinstance(args[0], Tensor) or not accumulates(func):
        return None
    if not (dtype.is_floating_point or dtype.is_complex) or args[0].is_floating_point() or args[0].is_complex():
        return None
    with unseen():
        return args[0].to(dtype)


def _rounded_by(func: Any, args: Any) -> Tensor | None:
    """Where an op is given a number at which its value is none of the dtype's; None where that is not known."""
    if not TRANSCENDENTAL.holds(func) or not args or not movable(args[0]) or args[0].is_complex():
        return None
    with unseen():
        return (args[0] != 0) & torch.isfinite(args[0])


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf


def _whole(value: Tensor) -> Tensor:
    if value.is_complex():
        return torch.complex(value.real.round(), value.imag.round())
    return value.round()


def _as_complex_transform(func: Any, given: Any, imaginary: Tensor, shape: torch.Size) -> Tensor:
    """The transform of real numbers as one of complex numbers: imaginary parts that cancel leave their rounding."""
    args, kwargs = given
    named = arguments_of(func, args, kwargs)
    dims = list(named["dim"])
    whole = torch.ops.aten._fft_c2c(torch.complex(args[0], imaginary), dims, named.get("normalization", 0), True)
    return whole.narrow(dims[-1], 0, shape[dims[-1]]) if dims else whole


def _stays_in_place(out: Any, operands: list[Any]) -> bool:
    """Whether an op leaves numbers in their places: its results are of the shape of its operands."""
    results = [leaf for leaf in leaves_of(out) if isinstance(leaf, Tensor)]
    given = [leaf.shape for leaf in operands if isinstance(leaf, Tensor) and leaf.numel() > 1]
    return all(shape == result.shape for result in results for shape in given)


def _holds(tensors: list[Any], leaf: Any) -> bool:
    return any(tensor is leaf for tensor in tensors)
