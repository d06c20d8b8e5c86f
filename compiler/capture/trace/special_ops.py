"""Ops that the recorder does not record as they are called."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from torchstone.compiler._torch.fake_tensors import FakeTensor
from torchstone.compiler.capture.symbolic.run_time_sizes import SHAPES


def _allclose(*args: Any, **kwargs: Any) -> torch.Tensor:
    from torchstone.compiler._torch.decompositions import isclose

    return isclose(*args, **kwargs).all()


def _svd(
    matrix: torch.Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> tuple[torch.Tensor, ...]:
    """Decompose; where LAPACK gives up on the vectors alone, with NaN for them.

    PyTorch's ``svdvals`` asks for vectors when it is traced, and not in eager: nobody may use them.
    """
    svd = torch.ops.aten._linalg_svd.default
    try:
        return svd(matrix, full_matrices, compute_uv, driver=driver)
    except torch.linalg.LinAlgError:
        _, values, _ = svd(matrix, full_matrices, False, driver=driver)
    rows, columns, few = *matrix.shape[-2:], values.shape[-1]
    left, right = (rows, rows if full_matrices else few), (columns if full_matrices else few, columns)
    batch = matrix.shape[:-2]
    return matrix.new_full((*batch, *left), math.nan), values, matrix.new_full((*batch, *right), math.nan)


EXAMPLES: dict[Any, Callable[..., Any]] = {torch.ops.aten._linalg_svd.default: _svd}
"""What is run in place of an op while a program is captured on its example inputs."""


def to_run(func: Any, leaves: Iterable[Any]) -> Callable[..., Any]:
    """Return what is run as an op is recorded: of fake tensors, what PyTorch's shape functions are wrong about."""
    fake = any(isinstance(leaf, FakeTensor) for leaf in leaves)
    return (SHAPES if fake else EXAMPLES).get(func, func)


# What tells Python of tensors but their values.
METADATA_OPS = frozenset(
    {
        torch.ops.aten.is_pinned.default, torch.ops.aten.is_same_size.default,
        torch.ops.aten._has_same_storage_numel.default, torch.ops.aten.size.default,
    }
)  # fmt: skip
# What gives Python a number, and the 0-d tensor that holds it.
SYNC_OPS: dict[Any, Callable[..., torch.Tensor]] = {
    torch.ops.aten._local_scalar_dense.default: lambda x: x.reshape(()),
    torch.ops.aten.equal.default: lambda x, y: torch.eq(x, y).all(),
    torch.ops.aten.allclose.default: _allclose,
    torch.ops.aten.is_nonzero.default: lambda x: x.reshape(()) != 0,
}
AT_PLACE = {
    torch.ops.aten.select.int: "aten.index.Tensor",
    torch.ops.aten.select_copy.int: "aten.index.Tensor",
    torch.ops.aten.select_scatter.default: "aten.index_put.default",
}
UNINITIALIZED_OPS = frozenset(
    {
        torch.ops.aten.empty, torch.ops.aten.empty_like, torch.ops.aten.empty_permuted, torch.ops.aten.empty_strided,
        torch.ops.aten.new_empty, torch.ops.aten.new_empty_strided,
    }
)  # fmt: skip
RANGES = frozenset(
    {
        torch.ops.aten._assert_scalar.default,
        torch.ops.aten.sym_constrain_range.default,
        torch.ops.aten.sym_constrain_range_for_size.default,
    }
)
# Schemas that say they write, of ops whose write nobody can see.
FUNCTIONAL_BY_NATURE = frozenset({torch.ops.aten.lift_fresh.default})

FACTORED_BY_ORDER = frozenset({torch.ops.aten._linalg_det.default, torch.ops.aten._linalg_slogdet.default})
"""Of a real matrix in row-major order they factor the transpose, else the matrix, and PyTorch's gradients go by that.
They are recorded for row-major matrices alone: a determinant is that of the transpose."""
