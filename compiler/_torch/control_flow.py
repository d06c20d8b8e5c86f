"""``torch.cond`` and ``torch.while_loop``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchstone.compiler._torch.dynamo import declines_control_flow
from torchstone.compiler._torch.names import uses


@contextlib.contextmanager
@uses("torch._higher_order_ops.utils._hop_compile_and_call")
def called_directly() -> Iterator[None]:
    """Have torch.cond and torch.while_loop call their op, and compile no wrapper of it.

    Under a dispatch mode PyTorch gives up on compiling the wrapper for good: the same call in eager, later in the
    process, then fails.
    """
    from torch._higher_order_ops import utils

    if not hasattr(utils, "_hop_compile_and_call"):  # before PyTorch 2.13
        with _wrappers_left_alone():
            yield
        return
    compiled = utils._hop_compile_and_call
    utils._hop_compile_and_call = lambda fn, args, kwargs=None: fn(*args, **(kwargs or {}))
    try:
        yield
    finally:
        utils._hop_compile_and_call = compiled


@contextlib.contextmanager
def _wrappers_left_alone() -> Iterator[None]:
    """Have torch.compile hand back the wrappers that are defined beside torch.cond and torch.while_loop."""
    compiled = torch.compile

    def compile(model: Any = None, **options: Any) -> Any:
        if str(getattr(model, "__module__", "")).startswith("torch._higher_order_ops."):
            return model
        return compiled(model, **options)

    torch.compile = compile  # type: ignore[assignment] - its overloads
    try:
        yield
    finally:
        torch.compile = compiled


@uses("torch.ops.higher_order.cond.python_key_table")
def functionalized_under(mode: type, base: type, refused: Callable[[str, Exception], Exception]) -> None:
    """Have torch.cond and torch.while_loop functionalized under a mode as under its base, which is PyTorch's own:
    PyTorch looks for rules by the very class.

    ``refused`` gives what is raised where PyTorch declines what the branches or the body do, by op and error.
    """

    def asked(name: str, rule: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            try:
                return rule(*args, **kwargs)
            except Exception as error:
                if declines_control_flow(error):
                    raise refused(name, error) from error
                raise

        return run

    for name in ("cond", "while_loop"):
        rules = getattr(torch.ops.higher_order, name).python_key_table
        rules[mode] = asked(name, rules[base])


@uses("torch.utils._python_dispatch._get_current_dispatch_mode_stack", "torch.ops.higher_order.cond.python_key_table")
def is_traced() -> bool:
    """Say whether ops are recorded: by Dynamo, or by a mode that takes an op of control flow as one."""
    if torch.compiler.is_compiling():
        return True
    from torch.utils import _python_dispatch

    rules = torch.ops.higher_order.cond.python_key_table  # fake tensors, and PyTorch's tracer
    modes = _python_dispatch._get_current_dispatch_mode_stack()
    return any(mode.supports_higher_order_operators or type(mode) in rules for mode in modes)
