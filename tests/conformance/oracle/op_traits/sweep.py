"""A run of the op database under a mode that measures what the table says of each operator that runs."""

from __future__ import annotations

import contextlib
import itertools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from torchstone.conformance.oracle.equality import same_values
from torchstone.conformance.oracle.exactness.nan_sign import keeps_nan_signs
from torchstone.conformance.oracle.exactness.signed_zero import keeps_zero_signs
from torchstone.conformance.oracle.random.replay import call_and_see_rng
from torchstone.conformance.sources.sampling import seeded

TRIES = 8
"""How many calls of an operator are measured at most: samples of one op call it again and again."""
DIGITS = 8
"""With how many digits of its operands a call is tried that has not been seen to round: a sum of two may be exact."""
NUMEL = 4096


@dataclass
class Measured:
    """What was seen of operators, by their names."""

    rounded: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    """For each call on float32: whether float64 gives other numbers."""
    gives_floats: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    zero_signs: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    """Whether zeros have the same signs in float32, float64, and in memory with gaps."""
    nan_signs: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    draws: dict[str, bool] = field(default_factory=dict)
    """By the op's name in the database: whether one of its samples took numbers from the generator."""


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.dtype is torch.float32 and leaf.layout is torch.strided


def _widened(leaf: Any) -> Any:
    if leaf is torch.float32:
        return torch.float64
    return leaf.double() if _is_float(leaf) else leaf


def _with_gaps(leaf: Any) -> Any:
    """The same numbers, every other element of longer memory."""
    if not _is_float(leaf) or not leaf.dim() or not leaf.numel():
        return leaf
    return torch.stack([leaf, leaf], -1)[..., 0]


def _signs(leaf: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, leaf.shape, generator=generator) * 2.0 - 1.0


class Sweep(TorchDispatchMode):
    """Measures each operator that runs inside of it."""

    def __init__(self, measured: Measured) -> None:
        super().__init__()
        self.measured = measured
        self.generator = torch.Generator().manual_seed(0)
        self.drew = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        again = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, (args, kwargs))
        out, drew = call_and_see_rng(func, args, kwargs)
        self.drew |= drew
        leaves = tree_leaves(again)
        wanted = any(map(_is_float, leaves)) and all(
            leaf.numel() <= NUMEL for leaf in leaves if isinstance(leaf, Tensor)
        )
        if not func._schema.is_mutable and torch.Tag.nondeterministic_seeded not in func.tags and wanted:
            self._measure(func, again, out)
        return out

    def _measure(self, func: Any, given: Any, out: Any) -> None:
        name, measured = str(func), self.measured
        if len(measured.gives_floats[name]) < TRIES:
            results = [leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)]
            measured.gives_floats[name].append(any(leaf.is_floating_point() for leaf in results))
            self._rounds(func, given, measured.rounded[name])
            for _ in range(DIGITS):
                self._rounds(func, tree_map(self._other_digits, given), measured.rounded[name])
                if any(measured.rounded[name]):
                    break
        if keeps_zero_signs(func) and len(measured.zero_signs[name]) < TRIES:
            self._same_signs(func, given, lambda leaf: 0.0 * _signs(leaf, self.generator), measured.zero_signs[name])
        if keeps_nan_signs(func) and len(measured.nan_signs[name]) < TRIES:
            nan = torch.tensor(torch.nan)
            self._same_signs(
                func, given, lambda leaf: torch.copysign(nan, _signs(leaf, self.generator)), measured.nan_signs[name]
            )

    def _other_digits(self, leaf: Any) -> Any:
        """Numbers of the same size and sign, with digits of their own."""
        return leaf * (1 + torch.rand(leaf.shape, generator=self.generator)) if _is_float(leaf) else leaf

    def _rounds(self, func: Any, given: Any, seen: list[bool]) -> None:
        """Note whether float64 gives other numbers."""
        narrow, wide = self._run(func, given), self._run(func, tree_map(_widened, given))
        if narrow is None or wide is None or len(narrow) != len(wide):
            return
        pairs = [(a, b) for a, b in zip(narrow, wide, strict=True) if _is_float(a)]
        if all(a.shape == b.shape for a, b in pairs):
            seen.append(not all(bool(same_values(a.double(), b).all()) for a, b in pairs))

    def _same_signs(self, func: Any, given: Any, values: Callable[[Tensor], Tensor], seen: list[bool]) -> None:
        """Note whether results have the same signs in float32, in float64 and from memory with gaps."""
        filled = tree_map(lambda leaf: values(leaf) if _is_float(leaf) else leaf, given)
        runs = [self._run(func, tree_map(change, filled)) for change in (lambda leaf: leaf, _widened, _with_gaps)]
        if all(run is not None for run in runs):
            floats = [
                [leaf for leaf in run or [] if isinstance(leaf, Tensor) and leaf.is_floating_point()] for run in runs
            ]
            first = [leaf.signbit() for leaf in floats[0]]
            seen.append(all(torch.equal(a, b.signbit()) for run in floats[1:] for a, b in zip(first, run, strict=True)))

    def _run(self, func: Any, given: Any) -> list[Any] | None:
        args, kwargs = given
        try:
            return tree_leaves(func(*args, **kwargs))
        except Exception:  # no kernel for float64, sizes that depend on values, ...
            return None


def sweep(samples: int = 2) -> Measured:
    """Run the first samples of every op of the database in float32."""
    from torch.testing._internal.common_methods_invocations import op_db

    measured = Measured()
    for info in op_db:
        if torch.float32 not in info.supported_dtypes("cpu") or "sparse" in info.name:
            continue
        with seeded(info.name), torch.no_grad():
            for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), samples):
                mode = Sweep(measured)
                with mode, contextlib.suppress(Exception):
                    info.op(sample.input, *sample.args, **sample.kwargs)
                measured.draws[info.name] = measured.draws.get(info.name, False) or mode.drew
    return measured
