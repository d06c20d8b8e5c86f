"""``torch.compile``: TorchDynamo, AOTAutograd and Inductor."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from typing import Any

from torchstone.compiler._torch.names import Names, uses

_DYNAMO = "torch._dynamo"
_NAMES = Names(
    __name__,
    {
        "reset": (f"{_DYNAMO}.reset", "forget the programs that were compiled"),
        "config": (f"{_DYNAMO}.config", "have errors raised, and no program run in eager unasked"),
        "aot_autograd": (f"{_DYNAMO}.backends.common.aot_autograd", "get forward and backward graphs of ATen ops"),
        "Unsupported": (f"{_DYNAMO}.exc.Unsupported", "tell what TorchDynamo declines"),
        "UserError": (f"{_DYNAMO}.exc.UserError", "tell a branch that hangs on data"),
        "BackendCompilerFailed": (f"{_DYNAMO}.exc.BackendCompilerFailed", "tell an error of the compiler behind"),
        "TorchDynamoException": (f"{_DYNAMO}.exc.TorchDynamoException", "tell an error of TorchDynamo"),
        "CompilerBisector": (
            "torch._inductor.compiler_bisector.CompilerBisector",
            "tell which pass or lowering of Inductor a failure comes from",
        ),
        "inductor_config": ("torch._inductor.config", "turn Inductor's caches of finished graphs off"),
        "inductor_memory": ("torch._inductor.memory", "order what Inductor compiles of several programs"),
        "header_folder": ("torch._inductor.codecache._HEADER_DIR", "keep the C++ headers that Inductor precompiles"),
        "is_gcc": ("torch._inductor.cpp_builder.is_gcc", "tell whether these may be used in another folder"),
        "inductor_cache_dir": (
            "torch._inductor.runtime.cache_dir_utils.cache_dir",
            "keep the libraries by which it tells the machine's vector units",
        ),
        "default_inductor_cache_dir": (
            "torch._inductor.runtime.cache_dir_utils.default_cache_dir",
            "give them to a script that runs in a folder of its own",
        ),
        "functorch_config": ("torch._functorch.config", "keep buffers of a graph that is gone back through again"),
        "GraphLowering": ("torch._inductor.graph.GraphLowering", "read the code that Inductor writes for a graph"),
    },
)


def __getattr__(name: str) -> Any:
    return _NAMES.look_up(name)


@uses(_DYNAMO)
def load() -> None:
    """Import TorchDynamo, which takes a while, before it is needed."""
    importlib.import_module(_DYNAMO)


def is_loaded() -> bool:
    """Say whether TorchDynamo was imported: it replaces functions of PyTorch's as it is."""
    return _DYNAMO in sys.modules


@uses("torch._dynamo.exc.UncapturedHigherOrderOpError", "torch._higher_order_ops.utils", "torch._higher_order_ops.cond")
def declines_control_flow(error: Exception) -> bool:
    """Say whether PyTorch declines a function of control flow: it writes, shares memory, or gives another layout."""
    kinds = ("UncapturedHigherOrderOpError", "UnsupportedAliasMutationException")
    words = ("might be aliasing the input", "might be modifying the input")
    if type(error).__name__ in kinds or any(map(str(error).__contains__, words)):
        return True
    raised: BaseException | None = error
    while raised is not None:  # TorchDynamo's own error hides where PyTorch merges the results of two branches
        if any(frame.f_code.co_name == "_bound_stride" for frame, _ in traceback.walk_tb(raised.__traceback__)):
            return True
        raised = raised.__cause__ or raised.__context__
    return False


def takes_one_list(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a compiled function as one that takes its arguments in a list, which it clears; return it."""
    fn.__dict__["_boxed_call"] = True
    return fn
