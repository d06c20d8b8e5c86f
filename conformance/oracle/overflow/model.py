"""The overflow model: which results depend on where a program leaves the range of its dtype.

``3e38 + 3e38 - 3e38`` is infinite in float32 when the sum begins on the left, and 3e38 when it begins on the right.
The float64 twin never leaves float32's range, and cannot tell. A run of this model is a run of the twin that overflows
where the narrower dtype may:

- An accumulation (a sum, a contraction, a transform) whose positive terms alone exceed the range may give +inf, one
  whose negative terms alone do may give -inf, and where both do, NaN. Where one sign stays within the range, no order
  of the additions overflows to that side. Terms that are infinite or NaN are in every order: they decide the result,
  except that an infinity may meet an overflow of the other sign.
- Of products of three operands any two may be multiplied first, and infinite terms as below.
- A Fourier transform multiplies by roots of unity, and each algorithm leaves out others that are 0 or 1: a term that
  is not finite reaches any result of its transform, or misses it, as an infinity or NaN.
- A mean and a variance, in one pass or in two, and what is normalized by them, may be NaN where they are infinite:
  there PyTorch's own decompositions stand beside eager, whatever they make of infinities. In one pass the running mean
  overflows, and is NaN or infinite, where a term and the mean of those before are of two signs and far apart.
- A norm, and the gradient of softmax, has several formulas: each is run (formulas.py).
- A product of several factors may overflow before a small one comes in, and underflow before a large one does; where
  both may, it may be NaN. Its sign is in every order the same (products.py).
- Where sums of products are regrouped, ``inf * (a + b)`` is infinite and ``inf * a + inf * b`` may be NaN.
- A step of an op's formula (PyTorch's decomposition of it) gives infinity where its exact result exceeds the range, or
  stays finite where it is fused into the next: an op promises its result, not the way to it. The steps of 16-bit
  numbers are computed in float32.
- Any other step gives infinity where its exact result exceeds the range. Of float64, which has no wider twin, a product
  beyond the range may be fused into the addition after it.
- An accumulation in float64 is computed on operands scaled by a power of two (scaling.py).

The orders are drawn at random, and each element has its own: a number that no order gives is in no run. A run that met
nothing to choose is what every other choice gives, too (``open``).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import unseen
from torchstone.compiler._torch.operators import base_name, functional_form
from torchstone.compiler._torch.pytrees import tree_flatten, tree_map, tree_unflatten
from torchstone.conformance.oracle.op_traits.order_of_terms import (
    AVERAGES_WINDOWS,
    FUSED_MULTIPLY_ADD,
    MOMENTS,
    MULTIPLIES_ELEMENTS,
    SEVERAL_FORMULAS,
    TRANSFORMS,
)
from torchstone.conformance.oracle.op_traits.trait import holds_any
from torchstone.conformance.oracle.overflow.formulas import other_formulas
from torchstone.conformance.oracle.overflow.products import Factors
from torchstone.conformance.oracle.overflow.scaling import (
    MAX_DEGREE,
    SHIFT,
    FusedProducts,
    distinct_numbers,
    homogeneous_operands,
    kept_from_zero,
    replace_leaves,
    restored,
    shifted,
    unless_nan,
)
from torchstone.conformance.oracle.own_fault import raise_own_fault
from torchstone.conformance.oracle.perturbation.accumulation import as_scatter, length_of, movable, transform_length
from torchstone.conformance.oracle.perturbation.decompositions import agree, decompositions
from torchstone.conformance.oracle.perturbation.rounding import RandomRounding
from torchstone.conformance.oracle.pytree import leaves_of, map_leaves
from torchstone.conformance.oracle.tolerances import real_dtype
from torchstone.conformance.tensor_bytes import packed_bytes

WITHIN = ("within", "some within")
"""The kinds of runs in which the steps of a formula overflow, and those of the program do not."""

Sums: TypeAlias = str
"""Where accumulations overflow if they may: ``up``, ``down``, ``both`` (NaN), ``none``, or ``any`` at random. ``lost``:
nowhere, and what they cancel to has lost the digits that rounding loses, of float64."""


class Terms(NamedTuple):
    """A result of an op that accumulates, and what the op gives of other terms: of scaled ones (``whole``), of the
    finite ones, of the sizes of all."""

    out: Any
    whole: Any
    net: Any
    total: Any
    noise: Any
    """How far the order of the terms moves the result."""
    nan: Any
    """NaN where a term is."""
    degree: int
    """By which scaled operands scale the result; 0: they are not scaled."""
    mixed: bool
    """Whether terms of one sign may overflow to the other side."""
    regrouped: bool
    """Whether some terms are added up before they are multiplied."""


class RandomOverflow(RandomRounding):
    """Runs what is inside it in the range of ``dtype``, without rounding. ``steps``: whether steps that are no
    accumulations overflow too: ``never``, ``always``, at random (``some``), or only those ``within`` the formula of an
    op, all of them or ``some within``.
    ``formula``: 0 for PyTorch's decompositions, others for the other formulas of an op, in turn."""

    def __init__(self, dtype: torch.dtype, seed: int, sums: Sums, steps: str, formula: int = 0, **shared: Any) -> None:
        super().__init__(dtype, seed, **shared)
        self.choice = sums
        self.steps = steps
        self.formula = formula
        self.formulas = 1
        """How many formulas there are of an op that was run."""
        self.open = False
        """Whether anything came near the end of the range, so that another choice may give another number."""
        self.products = FusedProducts()
        self.within = 0
        """How many ops deep in the formulas of one."""
        self.moments = 0

    def _compute_in(self, dtype: torch.dtype) -> None:
        super()._compute_in(dtype)
        self.range = _past(real_dtype(dtype))
        self.room = max(self.range, _past(torch.float32))
        self.widest = real_dtype(dtype) is torch.float64

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if not self.widest or not movable(out) or out.is_complex():
            return out
        role = FUSED_MULTIPLY_ADD.ops.get(base_name(func))
        if role == "product":
            self._choose_where(torch.isinf(out))
        if self.steps != "some":
            return out
        if role == "product":
            self.products.keep(args, out, self._coin(out))
        return self.products.add(func, args, kwargs, out) if role == "sum" else out

    def _choose_where(self, where: Tensor) -> None:
        self.open = self.open or bool(where.any())

    def _round(self, value: Any, inexact: Tensor | None = None) -> Any:
        if not movable(value):
            return value
        with unseen():  # what chooses is no step of the program
            return _by_part(value, self._overflowed)

    def _overflowed(self, value: Tensor) -> Tensor:
        past_range = torch.isfinite(value) & (value.abs() >= self.range)
        self._choose_where(past_range)
        if self.steps == "never" or (self.steps in WITHIN and not self.depth):
            return value
        inside = self.steps in WITHIN and not self.within
        beyond = past_range & (value.abs() >= self.room) if inside else past_range
        if self.steps in ("some", "some within"):
            beyond &= self._coin(value)
        # In one pass a running mean that overflows meets its opposite: within moments infinities may be NaN.
        infinity = math.nan if self.moments and self.choice == "both" else math.inf
        return torch.where(beyond, torch.copysign(torch.full_like(value, infinity), value), value)

    def _coin(self, like: Tensor) -> Tensor:
        return torch.randint(0, 2, like.shape, generator=self.generator).bool()

    def _written_to(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """What is written in place is what the op gives that writes nothing. Moments that update running statistics are
        taken apart as those that do not."""
        plain = functional_form(func) if base_name(func).endswith("_") else None
        if plain is not None:
            with self:
                out = plain(*args, **kwargs)
            return args[0].copy_(out)
        rule = decompositions().get(func) if MOMENTS.holds(func) else None
        if rule is None or not self._stands_for(None, func, rule, args, kwargs):
            return super()._written_to(func, args, kwargs)
        with self._inside(func), self:
            return rule(*args, **kwargs)

    @contextlib.contextmanager
    def _inside(self, func: Any) -> Iterator[None]:
        several, moments = holds_any((SEVERAL_FORMULAS, MOMENTS), func), MOMENTS.holds(func)
        self.within, self.moments = self.within + several, self.moments + moments
        try:
            yield
        finally:
            self.within, self.moments = self.within - several, self.moments - moments

    def _decomposed(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        rule = decompositions().get(func)
        with self._inside(func):
            if not self.within or rule is None:
                return super()._decomposed(func, args, kwargs)
            others = other_formulas(func, rule, args, kwargs)
            wide = self.widest and MOMENTS.holds(func) and not others
            self.formulas = max(self.formulas, 1 + len(others) + wide)
            if self.formula and wide:
                return self._in_more_range(func, args, kwargs)
            if not self.formula or not others or not self._stands_for(None, func, rule, args, kwargs):
                return super()._decomposed(func, args, kwargs)
            with self:
                return others[(self.formula - 1) % len(others)]()

    def _in_more_range(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Moments whose sums do not overflow: terms may be divided before they are added up."""
        chosen, degrees = homogeneous_operands(func, args, kwargs, self.found)
        out = func(*args, **kwargs)
        if degrees is None:
            return out
        given, named = replace_leaves(_scaled, args, kwargs, chosen)
        leaves, spec = tree_flatten(out)
        scaled = tree_flatten(func(*given, **named))[0]
        return tree_unflatten([restored(*row) for row in zip(leaves, scaled, degrees, strict=True)], spec)

    def _agrees(self, key: Any, func: Any, rule: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """A decomposition of moments stands for the op if it does for numbers of ordinary size, whatever infinities and
        what cancels beside large numbers set apart; in float64 any does that is the op where nothing overflows."""
        ordinary = holds_any((SEVERAL_FORMULAS, MOMENTS), func)
        if ordinary:
            self.sums += 1  # a norm by statistics that are given adds nothing up, and has its formula all the same
        loose = self.widest and self.steps != "never"
        with unseen():
            asked = (func, loose, *map(_content, leaves_of(args, kwargs)))
        if asked not in self.found:
            answer = _stands_for_ordinary if ordinary else functools.partial(_stands_for, loose=loose)
            with unseen():
                self.found[asked] = answer(func, rule, args, kwargs)
        return self.found[asked]

    def _accumulated(
        self, func: Any, args: Any, kwargs: dict[str, Any], out: Any, operands: list[Tensor], results: list[Tensor]
    ) -> Any:
        factors = Factors.of(func, args, kwargs) if movable(out) else None
        if factors is not None and (self.widest or not out.is_complex()):
            partial = self._partial_dtype(func)
            choose = functools.partial(self._kinds_where, out.shape)
            if out.is_complex():
                return factors.of_complex_numbers(out, choose)
            return factors.in_some_order(out, _past(partial), torch.finfo(partial).tiny, choose)
        func, args, kwargs = as_scatter(func, args, kwargs)
        try:
            chosen, degrees = homogeneous_operands(func, args, kwargs, self.found)
            scale = degrees if self.widest and degrees and max(degrees) <= MAX_DEGREE else None
            partial = MULTIPLIES_ELEMENTS.holds(func) or max(degrees or [0]) > MAX_DEGREE
            regrouped = TRANSFORMS.holds(func) or max(degrees or [0]) > MAX_DEGREE
            small = _scaled if scale else _unscaled
            size = functools.partial(_size, least=1.0 if partial else 0.0, beyond=math.inf if regrouped else 0.0)
            runs = [
                (small, args, kwargs),
                (lambda leaf, weight: _finite_part(small(leaf, weight)), args, kwargs),
                (lambda leaf, weight: size(small(leaf, weight)), *_unnormalized(func, args, kwargs)),
                (lambda leaf, weight: _where_nan(leaf), args, kwargs),
            ]
            with unseen():
                calls = [replace_leaves(each, given, named, chosen) for each, given, named in runs]
            whole, net, total, nan = (func(*given, **named) for given, named in calls)
            if scale and any(movable(leaf) and bool(torch.isnan(leaf).any()) for leaf in tree_flatten(whole)[0]):
                given, named = replace_leaves(_kept_from_zero, args, kwargs, chosen)
                whole = tree_map(unless_nan, whole, func(*given, **named))
            noise = total
            if scale and self.choice == "lost":
                # A transform multiplies each term by a root of unity, which rounds it.
                rounds = (lambda leaf: leaf) if TRANSFORMS.holds(func) else _fine_part
                given, named = replace_leaves(
                    lambda leaf, weight: size(small(rounds(leaf), weight)), args, kwargs, chosen
                )
                growth = max(1.0, math.sqrt(length_of(operands, results)) / 8.0) * torch.finfo(torch.float64).eps
                noise = tree_map(functools.partial(_lost, growth=growth), total, func(*given, **named))
        except Exception as error:  # an op of its own rules about its operands, such as a factorization
            raise_own_fault(error)
            return out
        if AVERAGES_WINDOWS.holds(func):
            net, total = (value * _window(base_name(func), args) for value in (net, total))
        if TRANSFORMS.holds(func):
            rounds_up = 1.0 + self.eps * transform_length(func, args, kwargs)
            total, noise = (_over(value, args[1]) for value in (total * rounds_up, noise))
        leaves, spec = tree_flatten(out)
        rows = zip(
            leaves, *(tree_flatten(tree)[0] for tree in (whole, net, total, noise, nan)), scale or [0] * len(leaves),
            strict=True,
        )  # fmt: skip
        with unseen():
            found = [self._in_some_order(func, Terms._make((*row, partial or regrouped, regrouped))) for row in rows]
        return tree_unflatten(found, spec)

    def _in_some_order(self, func: Any, terms: Terms) -> Any:
        """A result of an accumulation of terms."""
        out, whole, net, total, noise, nan, degree, mixed, regrouped = terms
        if not movable(out) or net.shape != out.shape:
            return out
        room = math.ldexp(1.0, 1024 - degree * SHIFT) if degree else _past(self._partial_dtype(func))
        loses = self.choice == "lost" and degree > 0
        out = restored(out, whole, degree, noise.real if loses else 0.0) if degree else out
        total = torch.maximum(total.real, total.imag) if total.is_complex() else total
        up = down = ~(total.expand(out.shape) < room)
        if not out.is_complex() and not mixed:
            # Small terms of one sign are lost beside large ones of the other.
            lost = torch.where(total < 2 * room, 0.0, total * torch.finfo(torch.float64).eps)
            up, down = (~((total + side * net) / 2 + lost < room) for side in (1, -1))
            if self.moments:  # in one pass a term less the mean of those before overflows, to the side of either
                meets = ~(total < room) & (net.abs() < total)
                up, down = up | meets, down | meets
        if loses:
            self.open = True
            lost = shifted(noise.real, degree * SHIFT)
            out = _by_part(out, lambda part: _within_range(part, lost * self._even(part)))
        if regrouped:
            free = up & ~(torch.isnan(nan.real) if nan.is_complex() else torch.isnan(nan)) & ~torch.isfinite(out)
            self._choose_where(free)
            out = _by_part(out, lambda part: torch.where(free & ~torch.isfinite(part), self._special(part), part))
        choose = functools.partial(self._chosen, up=up, down=down, mixed=MOMENTS.holds(func))
        return _by_part(out, choose, whole if degree else out)

    def _special(self, part: Tensor) -> Tensor:
        """What an infinite term may make of a result whose terms are added up before they are multiplied."""
        chosen = self._kinds(part.shape)
        special = torch.where(chosen == 0, math.inf, torch.where(chosen == 1, -math.inf, math.nan))
        return torch.where(chosen > 2, part, special)

    def _even(self, like: Tensor) -> Tensor:
        return torch.rand(like.shape, generator=self.generator, dtype=torch.float64) * 2.0 - 1.0

    def _chosen(self, out: Tensor, exact: Tensor, up: Tensor, down: Tensor, mixed: bool) -> Tensor:
        """``out``, and where it may go ``up`` or ``down`` what the run chooses. ``mixed``: infinities may be NaN.
        ``exact``: what is finite if all terms are, though ``out`` may be beyond the range."""
        self._choose_where(up | down | (torch.isinf(out) & mixed))
        chosen = self._kinds(out.shape)
        finite = torch.isfinite(exact)
        result = torch.where(finite & up & (chosen == 0), math.inf, out)
        result = torch.where(finite & down & (chosen == 1), -math.inf, result)
        lost = (finite & up & down) | ((out == math.inf) & down) | ((out == -math.inf) & up)
        if mixed:
            lost |= torch.isinf(out)
        return torch.where(lost & (chosen == 2), math.nan, result)

    def _moved_operands(self, *given: Any) -> Any:
        """Operands of an op that writes and has no other form: another run of them is another order."""
        self.open = True
        return super()._moved_operands(*given)

    def _kinds_where(self, shape: torch.Size, free: Tensor) -> Tensor:
        """What the run chooses for each result that is ``free``."""
        self._choose_where(free)
        return self._kinds(shape)

    def _kinds(self, shape: torch.Size) -> Tensor:
        """What the run chooses for each result: 0 to go up, 1 down, 2 both, 3 and 4 none."""
        if self.choice == "any":
            return torch.randint(0, 4, shape, generator=self.generator)
        return torch.full(shape, ("up", "down", "both", "none", "lost").index(self.choice))


def _past(dtype: torch.dtype) -> float:
    """The least number that rounds to infinity."""
    info = torch.finfo(dtype)
    largest, exponent = math.frexp(info.max)
    return math.inf if dtype is torch.float64 else math.ldexp(largest + info.eps / 4, exponent)


def _stands_for_ordinary(func: Any, rule: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    ordinary = [
        each(*map_leaves(distinct_numbers, _copied(args)), **map_leaves(distinct_numbers, _copied(kwargs)))
        for each in (rule, func)
    ]
    return agree(*ordinary)


def _stands_for(func: Any, rule: Any, args: Any, kwargs: dict[str, Any], loose: bool) -> bool:
    steps, whole = (each(*_copied(args), **_copied(kwargs)) for each in (rule, func))
    if loose:
        small = [each(*map_leaves(shifted, _copied(args)), **_copied(kwargs)) for each in (rule, func)]
        loose = _agree_where_finite(*map(_rescaled, small))
    return agree(steps, _where_finite(steps, whole) if loose else whole)


def _content(leaf: Any) -> Any:
    """What is equal for two arguments with the same numbers: most runs of the model ask about the same ones."""
    if not isinstance(leaf, Tensor):
        return type(leaf), str(leaf)
    if leaf.layout is not torch.strided:
        return id(leaf)
    numbers = packed_bytes(leaf).numpy()
    return leaf.dtype, leaf.shape, leaf.stride(), hashlib.blake2b(numbers.tobytes(), digest_size=16).digest()


def _copied(args: Any) -> Any:
    return map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, args)


def _where_finite(steps: Any, whole: Any) -> list[Any]:
    """The leaves of ``whole``, but those of ``steps`` where either is not finite."""

    def pick(one: Any, other: Any) -> Any:
        if not movable(one) or one.shape != other.shape:
            return other
        return torch.where(torch.isfinite(one) & torch.isfinite(other), other, one)

    return [pick(*pair) for pair in zip(tree_flatten(steps)[0], tree_flatten(whole)[0], strict=True)]


def _agree_where_finite(steps: Any, whole: Any) -> bool:
    """Whether two computations agree. Of complex numbers that are not finite in the same places, the others: what
    complex arithmetic makes of infinities is open."""

    def beside(one: Any, other: Any) -> Any:
        open_too = movable(one) and one.is_complex() and torch.equal(torch.isfinite(one), torch.isfinite(other))
        return _where_finite(one, other)[0] if open_too else other

    pairs = zip(tree_flatten(steps)[0], tree_flatten(whole)[0], strict=True)
    return agree(steps, [beside(*pair) for pair in pairs])


def _by_part(value: Tensor, change: Callable[..., Tensor], *others: Tensor) -> Tensor:
    if not value.is_complex():
        return change(value, *others)
    parts = ([getattr(each, part) for each in (value, *others)] for part in ("real", "imag"))
    return torch.complex(*(change(*part) for part in parts))


def _scaled(leaf: Any, weight: int) -> Any:
    return shifted(leaf, -weight * SHIFT)


def _kept_from_zero(leaf: Any, weight: int) -> Any:
    return kept_from_zero(leaf, -weight * SHIFT)


def _unscaled(leaf: Any, weight: int) -> Any:
    return leaf


def _where_nan(leaf: Any) -> Any:
    """Plain numbers in place of all but NaN."""
    return torch.where(torch.isnan(leaf), math.nan, 1.0).to(leaf.dtype) if movable(leaf) else leaf


def _finite_part(leaf: Any) -> Any:
    return torch.where(torch.isfinite(leaf), leaf, 0.0) if movable(leaf) else leaf


def _size(leaf: Any, least: float, beyond: float) -> Any:
    """The magnitude of an operand's terms, ``beyond`` for those that are not finite: in place of the operand, an
    accumulation gives the sum of its terms' sizes."""
    if not movable(leaf):
        return leaf
    return torch.where(torch.isfinite(leaf), leaf.abs().clamp(min=least), beyond).to(leaf.dtype)


def _lost(total: Any, fine: Any, growth: float) -> Any:
    """How far the order of its terms moves a sum that stays in range: by roundings of what they add up to, and by no
    more than the terms that round at all (an addition strays by no more than the smaller of its operands)."""
    if not movable(total):
        return total
    return torch.minimum(growth * total.abs(), 2.0 * fine.abs())


def _within_range(sums: Tensor, moved: Tensor) -> Tensor:
    """Sums that are moved, and stay in the range where they were in it: no order has to take them out of it."""
    end = torch.finfo(torch.float64).max
    return torch.where(torch.isfinite(sums), (sums + moved).clamp(-end, end), sums)


def _rescaled(results: Any) -> Any:
    """Results on scaled operands, compared as those on operands of ordinary size are."""
    return tree_map(lambda leaf: shifted(leaf, SHIFT), results)


def _fine_part(leaf: Any) -> Any:
    """The terms of which sums within the range may be rounded: no multiples of the largest numbers' ULP."""
    unit = math.ldexp(1.0, 1023 - 52)
    return _by_part(leaf, lambda x: torch.where(x.fmod(unit) == 0, 0.0, x)) if movable(leaf) else leaf


def _window(name: str, args: Any) -> int:
    """How many terms at most an average pool adds up before it divides."""
    space = int(name[len(name.rstrip("d")) - 1])
    wanted = args[1] if len(args[1]) == space else [args[1][0]] * space
    if "adaptive" not in name:
        return math.prod(wanted)
    sizes = args[0].shape[-space:]
    return math.prod(min(size, -(-size // max(count, 1)) + 1) for size, count in zip(sizes, wanted, strict=True))


def _unnormalized(func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments with which the sizes of terms add up: a transform and a mean may be divided after they are added
    up, and factors of the whole have a size, too."""
    factors = {name: abs(value) if name in ("alpha", "beta") else value for name, value in kwargs.items()}
    if TRANSFORMS.holds(func) and len(args) > 3:
        return (*args[:2], 0, *args[3:]), factors
    return tuple("sum" if isinstance(value, str) and value == "mean" else value for value in args), factors


def _over(total: Tensor, dims: Any) -> Tensor:
    """The largest magnitude over the transformed dims, which is that of the first: the sum of the terms' sizes."""
    return total.abs().amax(dims, keepdim=True) if total.dim() else total.abs()
