"""Conversions of floating numbers to integers that cannot hold them: PyTorch leaves open what they give.

NaN, infinities and numbers beyond the range are converted by the machine's instruction, one in a vector loop and
another in its tail (``torch.Tensor.to`` says so, as C++ does). So no element that depends on such a number is compared.
The degree of an orthogonal polynomial is such a conversion, to int64: what is beyond is the lowest number on x86, of
which the polynomial is 0, and the highest on a GPU.
Which elements those are, runs of eager tell: each has other integers in the place of what was converted.

    x = tensor([1.5, inf])    x.int() -> [1, ?]    x.int() > -1 -> [True, ?]    x.int().sum() -> ?
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import base_name
from torchstone.compiler._torch.pytrees import tree_map
from torchstone.conformance.oracle.op_traits.rounding import RECURRENCE
from torchstone.conformance.oracle.perturbation.accumulation import arguments_of
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.random.unwritten import filled, unwritten_elements
from torchstone.conformance.program.program import Program
from torchstone.conformance.program.tensor_storage import copy_tensors

INTEGERS = frozenset(
    {torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64}
)
COPIES = ("copy_", "copy")
STAND_INS = ("zero", "one", "odd", "lowest", "highest")
DEGREES = (0, 1, 5, -1, 2)
"""The same of degrees. Of 1 and of NaN the polynomials of some degrees are alike, but of none that is negative."""


class StandIns(ComputingMode):
    """Gives each conversion another number of the range in the place of one that is out of range. ``found``: whether
    there was one."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.found = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if RECURRENCE.holds(func) and len(args) == 2:
            return func(args[0], self._degree(args[1]), **kwargs)
        dtype = _target(func, args, kwargs)
        if dtype is None:
            return func(*args, **kwargs)
        if base_name(func) in COPIES and isinstance(args[1], float):  # a number, which eager makes a tensor of
            args = (args[0], torch.tensor(args[1], dtype=torch.float64), *args[2:])
        given: Any = tree_map(lambda leaf: self._in_range(leaf, dtype), (args, kwargs))
        return func(*given[0], **given[1])

    def _in_range(self, leaf: Any, dtype: torch.dtype) -> Any:
        if not isinstance(leaf, Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
            return leaf
        if leaf.layout is not torch.strided:
            return leaf
        leaf = leaf.to(torch.float32) if leaf.dtype.itemsize == 1 else leaf  # float8 can hardly be compared
        beyond = out_of_range(leaf, dtype)
        if not bool(beyond.any()):
            return leaf
        self.found = True
        return torch.where(beyond, torch.tensor(self._number(leaf, dtype), dtype=leaf.dtype), leaf)

    def _degree(self, degree: Any) -> Any:
        """Small numbers in the place of a degree that int64 does not hold: eager counts up to it."""
        wide = torch.as_tensor(degree, dtype=torch.float64)
        beyond = out_of_range(wide, torch.int64)
        if not bool(beyond.any()):
            return degree
        self.found = True
        stand_in = float(DEGREES[STAND_INS.index(self.kind)])
        if not isinstance(degree, Tensor):
            return stand_in
        return torch.where(beyond, torch.tensor(stand_in, dtype=degree.dtype), degree)

    def _number(self, leaf: Tensor, dtype: torch.dtype) -> float:
        info, floats = torch.iinfo(dtype), torch.finfo(leaf.dtype)
        bits = round(1 - torch.tensor(floats.eps, dtype=torch.float64).log2().item())
        top = float(info.max + 1)
        highest = min(top - max(top * 2.0**-bits, 1.0), floats.max)
        numbers = {"zero": 0.0, "one": 1.0, "odd": 101.0, "lowest": max(float(info.min), floats.min)}
        return {**numbers, "highest": highest}[self.kind]


def _target(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.dtype | None:
    """The integers that a call converts its operands to, if it does. What quantizes is defined: it clamps."""
    if func.namespace != "aten":
        return None
    if base_name(func) in COPIES:
        dtype = args[0].dtype
    else:
        dtype = next((v for v in arguments_of(func, args, kwargs).values() if isinstance(v, torch.dtype)), None)
    return dtype if dtype in INTEGERS else None


def out_of_range(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Where floating numbers, or the real parts of complex ones, are none that an integer ``dtype`` has when the
    fraction is cut off. A tensor of booleans."""
    whole = (values.real if values.is_complex() else values).to(torch.float64).trunc()
    info = torch.iinfo(dtype)
    return ~((whole >= float(info.min)) & (whole < float(info.max + 1)))  # NaN is in no range


def undefined_elements(program: Program, args: tuple[Tensor, ...]) -> tuple[bool, list[Tensor | None] | None]:
    """Whether eager converts numbers out of range, and which elements of the leaves of its outputs, then of its inputs
    afterwards, depend on what that gives; None where sizes or Python's numbers do."""
    runs: list[list[Any]] = []
    for kind in STAND_INS:
        given = copy_tensors(args)
        with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]), StandIns(kind) as mode:
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(0)
            try:
                runs.append(flatten((filled(program)(*given), given)))
            except Exception:  # an index, or another argument, that eager refuses
                runs.append([])
        if not mode.found:
            return False, None
    return True, unwritten_elements(runs)
