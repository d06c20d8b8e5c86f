"""What a row of the table is: a function, the dtypes that eager takes, and the arguments of its samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.testing import make_tensor

from torchstone.conformance.program.call_targets import lookup
from torchstone.conformance.program.literals import DTYPES, ProgramError, map_leaves

WIDE = ("float32", "float64")
FLOATS = (*WIDE, "float16", "bfloat16")
COMPLEX = ("complex64", "complex128")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
NUMBERS = (*FLOATS, *COMPLEX, *INTEGERS)
ALL = (*NUMBERS, "bool")

SEED = 42
"""Of functions that draw, as in PyTorch's database."""


@dataclass(frozen=True)
class Drawn:
    """A tensor of random numbers, of the sample's dtype if none is given."""

    shape: tuple[int, ...]
    low: float | None
    high: float | None
    dtype: torch.dtype | None
    strided: bool

    def make(self, dtype: torch.dtype) -> Tensor:
        """The tensor, in a sample of a dtype."""
        return make_tensor(
            self.shape, dtype=self.dtype or dtype, device="cpu", low=self.low, high=self.high,
            noncontiguous=self.strided,
        )  # fmt: skip


@dataclass(frozen=True)
class Exact:
    """A tensor of given numbers: indices, counts, scales."""

    numbers: Any
    dtype: torch.dtype | None

    def make(self, dtype: torch.dtype) -> Tensor:
        """The tensor, in a sample of a dtype."""
        return torch.tensor(self.numbers, dtype=self.dtype or dtype)


class _OfSample:
    """Stands for the sample's dtype, where that is an argument."""

    def make(self, dtype: torch.dtype) -> torch.dtype:
        return dtype


OWN_DTYPE = _OfSample()


class Given(NamedTuple):
    """The arguments of a call; in place of tensors what makes them."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def given(*args: Any, **kwargs: Any) -> Given:
    """The arguments of a sample."""
    return Given(args, kwargs)


def drawn(
    *shape: int,
    low: float | None = None,
    high: float | None = None,
    dtype: torch.dtype | None = None,
    strided: bool = False,
) -> Drawn:
    """A tensor of random numbers, from -9 to 9 if no range is given; ``strided``: with gaps in memory."""
    return Drawn(shape, low, high, dtype, strided)


def exact(numbers: Any, dtype: torch.dtype | None = torch.int64) -> Exact:
    """A tensor of these numbers."""
    return Exact(numbers, dtype)


@dataclass(frozen=True)
class Function:
    """A row. ``draws``: from the random generator, which a program of it seeds first.

    ``name`` is that of a function of ``torch`` or of a method, if ``call`` does not say what is called. ``variant``
    tells apart samples that PyTorch's own record of the function lacks.
    """

    name: str
    dtypes: Sequence[str]
    samples: Sequence[Given]
    draws: bool = False
    differentiable: bool = True
    call: Callable[..., Any] | None = None
    variant: str = ""

    def info(self) -> Any:
        """The row in the form of PyTorch's database."""
        from torchstone.compiler._torch.op_database import OpInfo

        function = self.call or function_of(self.name)
        short = self.name.rpartition(".")[2]
        overloads = getattr(getattr(torch.ops.aten, short, None), "overloads", list)()
        return OpInfo(
            self.name,
            variant_test_name=self.variant,
            op=_seeded(function) if self.draws else function,
            dtypes={DTYPES[name] for name in self.dtypes},
            sample_inputs_func=self._samples,
            supports_out=any("out" in overload for overload in overloads),
            supports_autograd=self.differentiable,
        )

    def _samples(self, info: Any, device: str, dtype: torch.dtype, requires_grad: bool, **_: Any) -> Iterator[Any]:
        from torchstone.compiler._torch.op_database import SampleInput

        for sample in self.samples:
            args, kwargs = map_leaves((sample.args, sample.kwargs), lambda leaf: _made(leaf, dtype))
            yield SampleInput(args[0], args=args[1:], kwargs=kwargs)


def function_of(name: str) -> Callable[..., Any]:
    """The function of ``torch``, or else the method, of a name. Raises ``ProgramError``."""
    for prefix in ("torch", "torch.Tensor"):
        found = lookup(f"{prefix}.{name}")
        if found is not None:
            return found
    raise ProgramError(f"no program may call {name}")


def _made(leaf: Any, dtype: torch.dtype) -> Any:
    return leaf.make(dtype) if isinstance(leaf, Drawn | Exact | _OfSample) else leaf


def _seeded(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        torch.manual_seed(SEED)
        return function(*args, **kwargs)

    return call
