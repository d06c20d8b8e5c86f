"""Which ops jump, measured: operands on ties and zeros are moved by a millionth, and results leap or do not."""

from __future__ import annotations

import contextlib
import functools
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_leaves, tree_map

from torchstone.conformance.oracle.op_traits.rounding import GIVES_INTEGERS_OR_BOOLEANS, JUMPS
from torchstone.conformance.sources.sampling import seeded

MOVE, LEAP = 2.0**-20, 2.0**-8
SAMPLES = 16
INFOS: dict[str, Any] = {}
for _info in op_db:  # the plain op comes before its variants
    INFOS.setdefault(_info.name, _info)
    INFOS[f"{_info.name}.{_info.variant_test_name}".rstrip(".")] = _info


def on_ties(leaf: Any, generator: torch.Generator) -> Any:
    """Halves of whole numbers in place of floating numbers."""
    if not isinstance(leaf, Tensor) or leaf.dtype is not torch.float32 or leaf.layout is not torch.strided:
        return leaf
    return torch.randint(-4, 5, leaf.shape, generator=generator) / 2


def moved(leaf: Any, generator: torch.Generator) -> Any:
    if not isinstance(leaf, Tensor) or leaf.dtype is not torch.float32 or leaf.layout is not torch.strided:
        return leaf
    return leaf + MOVE * (torch.randint(0, 2, leaf.shape, generator=generator) * 2 - 1)


def leaps(one: Any, other: Any) -> bool:
    """Whether finite results are further apart than any slope of an ordinary function takes them, or of other sizes."""
    for a, b in zip(tree_leaves(one), tree_leaves(other), strict=True):
        if isinstance(a, Tensor) and a.shape != b.shape:
            return True
        if isinstance(a, Tensor) and a.numel():
            a, b = a.double(), b.double()
            finite = a.isfinite() & b.isfinite()
            if bool((finite & ((a - b).abs() > LEAP * (1 + a.abs()))).any()):
                return True
    return False


def jumps(name: str, samples: int = SAMPLES) -> bool:
    """Whether one of the first samples of an op, its operands on ties, leaps when they are moved."""
    info = INFOS[name]
    generator = torch.Generator().manual_seed(0)
    with seeded(name), torch.no_grad():
        for sample in itertools.islice(info.sample_inputs("cpu", torch.float32), samples):
            given = (sample.input, sample.args)
            for _ in range(2):
                ties = tree_map(functools.partial(on_ties, generator=generator), given)
                again = tree_map(functools.partial(moved, generator=generator), ties)
                with contextlib.suppress(Exception):
                    results = [info.op(first, *rest, **sample.kwargs) for first, rest in (ties, again)]
                    if leaps(*results):
                        return True
    return False


NOT_IN_SAMPLES = {
    "histogram": "takes edges in order, which those on ties are not",
    "unique": "the first samples have one element",
    "median": "leaps in the places that it gives beside values, with a dim",
    "nanmedian": "leaps in the places that it gives beside values, with a dim",
    "nextafter": "leaps by the last bit only",
    "nn.functional.max_pool1d": "gives places of maxima beside them on demand",
    "nn.functional.interpolate.nearest": "leaps where its scale is moved",
    "nn.functional.threshold": "leaps at its threshold, which the samples put beside the ties",
}


@pytest.mark.parametrize("name", sorted(JUMPS.ops.keys() - NOT_IN_SAMPLES.keys()))
def test_ops_of_the_table_leap(name: str) -> None:
    assert jumps(name), f"{name} does not jump"


NOT_NAMED = {
    "__rmod__": "is remainder, with its operands in the other order",
    "frexp": "its mantissa leaps at powers of two",
    "isclose": "gives booleans, which the fuzzer sees",
    "nn.functional.rrelu": "draws",
    "polygamma": "has poles at whole numbers",
    "special.polygamma": "has poles at whole numbers",
    **{
        f"special.{shifted}chebyshev_polynomial_{kind}": "its degree is rounded to a whole number"
        for shifted in ("", "shifted_")
        for kind in "tuvw"
    },
    **{
        f"special.{kind}": "its degree is rounded to a whole number"
        for kind in ("hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p")
    },
}
"""Ops that leap and are not in the table: the fuzzer may give them operands that were rounded."""


def test_elementwise_ops_that_leap_are_in_the_table() -> None:
    elementwise = [info for info in op_db if isinstance(info, UnaryUfuncInfo | BinaryUfuncInfo)]
    names = {f"{info.name}.{info.variant_test_name}".rstrip("."): info.name for info in elementwise}
    known = JUMPS.ops.keys() | GIVES_INTEGERS_OR_BOOLEANS.ops.keys() | NOT_NAMED.keys()
    missing = {op for op, base in names.items() if not {op, base} & known and jumps(op, samples=2)}
    assert not missing, "these leap, and JUMPS does not name them"
