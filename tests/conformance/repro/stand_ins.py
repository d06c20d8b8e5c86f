"""Paths in the place of a compiler's: a script has their text as it has that of ``compiler_paths``."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.repro.path_text import Needs


def compiled_by_eager(program: Any, args: Any, needs: Needs) -> Any:
    """A path that is right."""
    from torch.utils import _pytree

    def call(*args):
        return [leaf.clone() for leaf in _pytree.tree_leaves(program(*args))]

    return call


def compiled_wrongly(program: Any, args: Any, needs: Needs) -> Any:
    """A path whose results are all wrong."""
    from torch.utils import _pytree

    def call(*args):
        return [~leaf if leaf.dtype == torch.bool else leaf + 5 for leaf in _pytree.tree_leaves(program(*args))]

    return call


def compiled_for_dense_tensors(program: Any, args: Any, needs: Needs) -> Any:
    """A path that takes tensors in row-major memory alone."""
    from torch.utils import _pytree

    def call(*args):
        if not all(arg.is_contiguous() for arg in args):
            raise ValueError("not dense")
        return _pytree.tree_leaves(program(*args))

    return call


def compiled_with_memory(program: Any, args: Any, needs: Needs) -> Any:
    """A path whose results add up from call to call."""
    kept = []

    def call(*args):
        kept.append(program(*args))
        return [sum(kept)]

    return call
