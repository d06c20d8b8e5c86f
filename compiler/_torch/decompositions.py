"""PyTorch's decompositions of ops into simpler ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest.mock import patch

from torchstone.compiler._torch.names import Names, uses

_LISTER, _OVERRIDE = "_collect_all_valid_cia_ops", "_override_composite_implicit_decomp"
_NAMES = Names(
    __name__,
    {
        "decomposition_table": ("torch._decomp.decomposition_table", "find the decomposition of an op"),
        "core_aten_decompositions": (
            "torch._decomp.core_aten_decompositions",
            "find the decompositions that lead to core ATen",
        ),
        "isclose": ("torch._refs.isclose", "compute torch.isclose by ops that may be recorded"),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@uses("torch._refs")
def whole_table() -> Mapping[Any, Callable[..., Any]]:
    """Return every decomposition there is, those of PyTorch's references too, which take a while to import."""
    import torch._refs  # noqa: F401 - registers its functions
    from torch._decomp import decomposition_table

    return decomposition_table


@uses(f"torch._export.utils.{_LISTER}", f"torch.export.exported_program.{_OVERRIDE}")
def composite_ops() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return what torch.export lists composite ops by, and what it gives them their kernels by."""
    from torch._export import utils
    from torch.export import exported_program

    return getattr(utils, _LISTER), getattr(exported_program, _OVERRIDE)


@contextlib.contextmanager
@uses(f"torch.export.decomp_utils.{_LISTER}", f"torch.export.exported_program.{_LISTER}")
def composite_ops_replaced(list_ops: Callable[..., Any], override: Callable[..., Any]) -> Iterator[None]:
    """Replace both functions of ``composite_ops`` wherever torch.export calls them."""
    from torch.export import decomp_utils, exported_program

    with (
        patch.object(decomp_utils, _LISTER, list_ops),
        patch.object(exported_program, _LISTER, list_ops),
        patch.object(exported_program, _OVERRIDE, override),
    ):
        yield
