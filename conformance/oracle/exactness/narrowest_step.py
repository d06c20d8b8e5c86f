"""In which precision each call of a program computes, and what its results passed through on their way.

``x.double().sin()`` of float32 numbers is arithmetic of float64 on exact numbers, and ``i0(integers).cdouble()`` one of
float32, whatever dtypes the program begins and ends with. A run of eager tells, by the steps that round:

    x float32      exact
    .double()      exact: widening adds no error       x is read by no step of float32: its ULP is float64's
    .sin()         rounds to float64
    result         float64

A step that is exact in any precision (a view, a copy, a comparison) adds none. A conversion to fewer bits rounds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name, schema_of
from torchstone.compiler._torch.pytrees import tree_leaves
from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.exactness.steps import combines_by_argument, never_rounds
from torchstone.conformance.oracle.op_traits.references import WITHOUT_FLOAT64
from torchstone.conformance.oracle.op_traits.rounding import CONVERSIONS
from torchstone.conformance.oracle.op_traits.trait import names_of
from torchstone.conformance.oracle.perturbation.decompositions import decompositions
from torchstone.conformance.oracle.tolerances import real_dtype
from torchstone.conformance.oracle.ulp import precision


def narrower(left: torch.dtype | None, right: torch.dtype | None) -> torch.dtype | None:
    """The dtype of the larger rounding unit, of real dtypes; None stands for numbers that nothing has rounded."""
    if left is None or right is None:
        return left or right
    return left if precision(left) <= precision(right) else right


@dataclass(frozen=True)
class CallPrecision:
    """Of one call: the narrowest dtype it rounds to, None if it is exact; and whether that is a conversion alone, which
    the float64 twin does not make."""

    dtype: torch.dtype | None
    converts: bool = False


@dataclass
class _Past:
    """What is in a storage: the narrowest dtype it was rounded to, and the inputs that it is a plain copy of."""

    dtype: torch.dtype | None = None
    inputs: frozenset[int] = frozenset()


@dataclass
class _Steps:
    dtype: torch.dtype | None = None
    converts: bool = True
    conversions: set[int] = field(default_factory=set)


class RecordPrecision(ComputingMode):
    """Records in which precision each call of a program computes, of ``args`` given to it inside this mode."""

    def __init__(self, args: tuple[Tensor, ...]) -> None:
        super().__init__()
        self._kept: list[Any] = []  # a storage that is freed would lend its key to another
        self._past: dict[int, _Past] = {}
        self._calls: dict[int, _Steps] = {}
        self._at = _Steps()
        self._read: dict[int, torch.dtype] = {}
        self.numbers: torch.dtype | None = None
        """The narrowest dtype of what was read out of tensors into Python."""
        self.narrowest: torch.dtype | None = None
        """The narrowest dtype that any step rounds to."""
        self._inputs = args
        for index, tensor in enumerate(args):
            past = self._of(tensor)
            if past is not None:
                past.inputs |= {index}

    def perform(self, index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of the program: see ``Program.run``."""
        self._at = self._calls.setdefault(index, _Steps())
        given = {self._key(leaf) for leaf in tree_leaves((args, kwargs))}
        out = function(*args, **kwargs)
        results = {self._key(leaf) for leaf in tree_leaves(out) if isinstance(leaf, Tensor)}
        self._at.converts &= bool(results) and results <= self._at.conversions and not results & given
        return out

    def call(self, index: int) -> CallPrecision:
        """What the call at a place of the program rounds to."""
        steps = self._calls.get(index, _Steps())
        return CallPrecision(steps.dtype, steps.converts and steps.dtype is not None)

    def of_leaf(self, value: Any) -> torch.dtype | None:
        """The narrowest dtype that a leaf of the results was rounded to on its way; None if nothing rounded it."""
        if not isinstance(value, Tensor):
            return self.numbers or self.narrowest
        past = self._past.get(self._key(value))
        return narrower(past.dtype, self.numbers) if past is not None else self.narrowest

    def of_input(self, index: int) -> torch.dtype:
        """The dtype whose ULP an input is known to: that of the steps which read it, if it is wider than its own."""
        own, read = real_dtype(self._inputs[index].dtype), self._read.get(index)
        return read if read is not None and precision(read) > precision(own) else own

    def _key(self, value: Any) -> int:
        plain = isinstance(value, Tensor) and value.layout is torch.strided
        return storage_key(value.untyped_storage()) if plain else 0

    def _of(self, value: Any) -> _Past | None:
        key = self._key(value)
        if not key:
            return None
        if key not in self._past:
            self._kept.append(value.untyped_storage())
            self._past[key] = _Past()
        return self._past[key]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        operands = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        pasts = [past for past in map(self._of, operands) if past is not None]
        dtype: torch.dtype | None = None
        inputs = frozenset[int]().union(*(past.inputs for past in pasts))
        for past in pasts:
            dtype = narrower(dtype, past.dtype)
        out = func(*args, **kwargs)
        results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
        rounded, conversion = _rounds_to(func, args, kwargs, operands, results)
        if rounded is not None and not conversion:
            rounded = narrower(rounded, _within(func, args, kwargs, operands, rounded))
        if rounded is not None:
            self._note(rounded, conversion, results)
            for index in inputs:
                read = _operands_in(func, rounded)
                self._read[index] = narrower(self._read.get(index), read) or read
            dtype, inputs = narrower(dtype, rounded), frozenset()
        elif base_name(func) in ("_local_scalar_dense", "item"):
            for operand in operands:
                self.numbers = narrower(narrower(self.numbers, dtype), _floating(operand))
        mutable = schema_of(func).is_mutable
        for tensor in results + (operands if mutable else []):
            past = self._of(tensor)
            if past is not None:
                past.dtype, past.inputs = narrower(past.dtype, dtype), past.inputs | inputs
        return out

    def _note(self, dtype: torch.dtype, conversion: bool, results: list[Tensor]) -> None:
        self._at.dtype, self.narrowest = narrower(self._at.dtype, dtype), narrower(self.narrowest, dtype)
        self._at.converts &= conversion
        self._at.conversions |= {self._key(result) for result in results} if conversion else set()


class _Narrowest(ComputingMode):
    """Finds the narrowest dtype that a step inside it rounds to."""

    found: torch.dtype | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        operands, results = ([leaf for leaf in tree_leaves(each) if isinstance(leaf, Tensor)] for each in (args, out))
        self.found = narrower(self.found, _rounds_to(func, args, kwargs, operands, results)[0])
        return out


def _operands_in(func: Any, rounded: torch.dtype) -> torch.dtype:
    """The dtype that an op takes its operands in: float32 of those that round their results alone."""
    widened = WITHOUT_FLOAT64.holds(func) and precision(rounded) < precision(torch.float32)
    return torch.float32 if widened else rounded


def _within(
    func: Any, args: Any, kwargs: dict[str, Any], operands: list[Tensor], rounded: torch.dtype
) -> torch.dtype | None:
    """The narrowest dtype that a step within an op rounds to, by its decomposition, where the op has operands that are
    narrower than its results: ``binary_cross_entropy_with_logits`` takes logarithms before it promotes."""
    narrow = any(dtype and precision(dtype) < precision(rounded) for dtype in map(_floating, operands))
    rule = decompositions().get(func) if narrow and not schema_of(func).is_mutable else None
    if rule is None or torch.Tag.nondeterministic_seeded in func.tags:
        return None
    with contextlib.suppress(Exception), _Narrowest() as steps:  # a decomposition that does not take these arguments
        rule(*args, **kwargs)
    return steps.found


def _floating(tensor: Tensor) -> torch.dtype | None:
    return real_dtype(tensor.dtype) if tensor.dtype.is_floating_point or tensor.dtype.is_complex else None


def _rounds_to(
    func: Any, args: Any, kwargs: dict[str, Any], operands: list[Tensor], results: list[Tensor]
) -> tuple[torch.dtype | None, bool]:
    """The narrowest dtype a step rounds to, None if it is exact, and whether it is a conversion."""
    dtype: torch.dtype | None = None
    if CONVERSIONS.holds(func):
        source = args[1] if names_of(func)[0] == "copy" else args[0]
        if not isinstance(source, Tensor) or not results:
            return None, False
        to, given = _floating(results[0]), _floating(source)
        widens = to is None or (given is not None and precision(to) >= precision(given))
        return (None if widens else to), not widens
    if never_rounds(func) and not combines_by_argument(func, args, kwargs):
        return None, False
    for tensor in results:
        dtype = narrower(dtype, _floating(tensor))
    for tensor in operands if dtype is None else ():
        dtype = narrower(dtype, _floating(tensor))
    return dtype, False
