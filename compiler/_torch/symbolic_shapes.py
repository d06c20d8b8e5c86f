"""Sizes and numbers that are symbols: PyTorch's ShapeEnv, what it takes for granted, and its tracer of symbols."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from torchstone.compiler._torch.names import Names, attributes, uses

_SHAPES = "torch.fx.experimental.symbolic_shapes"
_NAMES = Names(
    __name__,
    {
        "ShapeEnv": (f"{_SHAPES}.ShapeEnv", "make symbols for sizes, and keep what is known of them"),
        "DimDynamic": (f"{_SHAPES}.DimDynamic", "say that a size is a symbol"),
        "SLoc": (f"{_SHAPES}.SLoc", "say which line of the program a condition on sizes comes from"),
        "free_unbacked_symbols": (f"{_SHAPES}.free_unbacked_symbols", "tell numbers that values decide"),
        "GuardOnDataDependentSymNode": (
            f"{_SHAPES}.GuardOnDataDependentSymNode",
            "tell a decision that values decide",
        ),
        "ConstantSource": ("torch._dynamo.source.ConstantSource", "name the symbol of a size"),
        "ProxyTorchDispatchMode": (
            "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode",
            "see what PyTorch's tracer is told of symbols",
        ),
        "note_symbol": (
            "torch.fx.experimental.proxy_tensor._sym_register",
            "have PyTorch's tracer note an operation on symbols",
        ),
    },
)
attributes(
    f"{_SHAPES}.ShapeEnv()",
    {
        "create_symbol", "create_symintnode", "create_unbacked_symbool", "create_unbacked_symfloat",
        "create_unbacked_symint", "deferred_runtime_asserts", "guards", "ignore_fresh_unbacked_symbols", "replace",
        "replacements", "var_to_range",
    },
    "make symbols for sizes, and read what is known of them",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


Locate = Callable[..., Any]


@uses(f"{_SHAPES}.ShapeEnv._get_sloc")
def locate_guards(env: Any, locate: Locate) -> None:
    """Have a ShapeEnv ask ``locate(framework_loc=None)``, an SLoc, where a condition comes from."""
    env._get_sloc = locate


@contextlib.contextmanager
def guards_located(locate: Locate) -> Iterator[None]:
    """Have every ShapeEnv ask ``locate(framework_loc=None)`` in the block."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    with mock.patch.object(ShapeEnv, "_get_sloc", lambda env, framework_loc=None: locate(framework_loc)):
        yield


_PREFIX = "_sym_"
_FUNCTIONS = ("log2", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan")
attributes("torch", (_PREFIX + name for name in _FUNCTIONS), "tell a function of Python's math applied to a symbol")


def math_functions() -> dict[Any, str]:
    """Return PyTorch's functions of symbols that stand for Python's math functions, with the names of these."""
    import torch

    return {getattr(torch, _PREFIX + name): name for name in _FUNCTIONS}
