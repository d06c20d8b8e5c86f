"""Ops of a user's own, and backends that get one of them wrong: what ``torchstone fuzz --op`` has to find.

Each backend runs the program op by op in eager, as a graph, with one op replaced by a wrong one. Half of the ops have
no sample function: what they take is learned.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.backends import Availability
from torchstone.conformance.program.fx import to_module
from torchstone.fuzz import register

LIBRARY = torch.library.Library("newops", "DEF")


def define(schema: str, function: Callable[..., Any], key: str = "CompositeImplicitAutograd") -> Any:
    """Define an op, and return its overload."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, function, key)
    return getattr(torch.ops.newops, name).default


class Replacing:
    """A backend with a wrong op. ``dynamic`` is the one for sizes that vary."""

    def __init__(
        self, name: str, op: Any, wrong: Callable[..., Any], dynamic: Callable[..., Any] | None = None
    ) -> None:
        self.name, self.op, self.wrong, self.dynamic = name, op, wrong, dynamic or wrong

    def available(self) -> Availability:
        return Availability(True)

    def versions(self) -> dict[str, str]:
        return {"torch": torch.__version__}

    def compile(self, fn: Any, args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self._with(fn, self.wrong)

    def compile_dynamic(self, fn: Any, args: tuple[Tensor, ...], dims: Any) -> Callable[..., Any]:
        return self._with(fn, self.dynamic)

    def _with(self, fn: Any, wrong: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:  # a node's target has a name
            return wrong(*args, **kwargs)

        module = to_module(fn)
        for node in module.graph.nodes:
            if node.target is self.op:
                node.target = call
        module.recompile()
        differentiates = any(call.target == "torch.autograd.grad" for call in fn.calls)

        def run(*tensors: Tensor) -> Any:
            with torch.set_grad_enabled(differentiates):
                return module(*tensors)

        return run


# 1. A wrong dtype rule: halves of integers are rounded.


def _mean_of_two(x: Tensor, y: Tensor) -> Tensor:
    return (x + y) / 2


MEAN_OF_TWO = define("mean_of_two(Tensor x, Tensor y) -> Tensor", _mean_of_two)
rounds_integers = Replacing(
    "rounds-integers",
    MEAN_OF_TWO,
    lambda x, y: ((x + y) / 2) if (x + y).is_floating_point() or (x + y).is_complex() else ((x + y) // 2).float(),
)

# 2. The last element, where a row does not fill vectors of four.


def _shifted(x: Tensor, by: int = 1) -> Tensor:
    return torch.roll(x, by, -1) if x.dim() else x.clone()


def _shifted_but_the_last(x: Tensor, by: int = 1) -> Tensor:
    out = _shifted(x, by)
    if x.dim() and x.shape[-1] % 4 == 3:
        out[..., -1] = x[..., -1]
    return out


SHIFTED = define("shifted(Tensor x, int by=1) -> Tensor", _shifted)
loses_the_last = Replacing("loses-the-last", SHIFTED, _shifted_but_the_last)
register(SHIFTED, sample=lambda dtype: [(torch.randn(3, 4).to(dtype),), (torch.randn(2, 2, 6).to(dtype), 2)])

# 3. Strides: the elements are read in the order of memory.


def _pair_sums(x: Tensor) -> Tensor:
    return x[..., 0::2] + x[..., 1::2]


def _pair_sums_in_memory_order(x: Tensor) -> Tensor:
    dense = sum(size - 1 for size in x.shape) and x.numel() and not x.is_contiguous()
    return _pair_sums(x.as_strided(x.shape, torch.empty(x.shape).stride()) if dense else x)


PAIR_SUMS = define("pair_sums(Tensor x) -> Tensor", _pair_sums)
ignores_strides = Replacing("ignores-strides", PAIR_SUMS, _pair_sums_in_memory_order)
register("newops::pair_sums", sample=lambda dtype: [(torch.randn(5, 4).to(dtype),), (torch.randn(2).to(dtype),)])

# 4. Values capped past a threshold that few inputs reach.


def _soft_cap(x: Tensor, cap: float = 30.0) -> Tensor:
    return cap * torch.tanh(x / cap)


SOFT_CAP = define("soft_cap(Tensor x, float cap=30.0) -> Tensor", _soft_cap)
caps_early = Replacing(
    "caps-early", SOFT_CAP, lambda x, cap=30.0: _soft_cap(x.clamp(max=50) if not x.is_complex() else x, cap)
)

# 5. A write that is missed.


def _accumulate(total: Tensor, x: Tensor) -> Tensor:
    total.add_(x)
    return x * 2


ACCUMULATE = define("accumulate(Tensor(a!) total, Tensor x) -> Tensor", _accumulate)
misses_the_write = Replacing("misses-the-write", ACCUMULATE, lambda total, x: (total + x, x * 2)[1])

# 6. One of the words that an argument takes, for NaN.


def _reduced(x: Tensor, how: str, dim: int = -1) -> Tensor:
    if how == "sum":
        return x.sum(dim)
    if how == "largest":
        return x.amax(dim)
    raise ValueError(f"how is 'sum' or 'largest', not {how!r}")


def _reduced_past_nan(x: Tensor, how: str, dim: int = -1) -> Tensor:
    floating = x.is_floating_point() and how == "largest"
    return _reduced(torch.where(x.isnan(), -torch.inf, x) if floating else x, how, dim)


REDUCED = define("reduced(Tensor x, str how, int dim=-1) -> Tensor", _reduced)
drops_nan = Replacing("drops-nan", REDUCED, _reduced_past_nan)
register(
    REDUCED,
    sample=lambda dtype: [((torch.randn(3, 5).to(dtype),), {"how": how}) for how in ("sum", "largest")],
)
right = Replacing("right", None, lambda: None)


def swish(x: Tensor, beta: float = 1.0) -> Tensor:
    """A Python function: not an operator of the dispatcher."""
    return x * torch.sigmoid(beta * x)


# Ops that break what they promise, and functions that torch.compile takes for backends.


@torch.library.custom_op("newops::badly_faked", mutates_args=())
def badly_faked(x: Tensor) -> Tensor:
    """The fake kernel forgets that a mean of integers has a fraction."""
    return x.to(torch.float32) / 2 if not x.is_floating_point() else x / 2


badly_faked.register_fake(lambda x: torch.empty_like(x))
register(badly_faked, sample=lambda dtype: [(torch.randn(3).to(dtype),)])


@torch.library.custom_op("newops::without_gradient", mutates_args=())
def without_gradient(x: Tensor) -> Tensor:
    """No formula of its gradient is registered."""
    return x * 2


without_gradient.register_fake(lambda x: torch.empty_like(x))
register(without_gradient, sample=lambda dtype: [torch.randn(3).to(dtype)])


@torch.library.custom_op("newops::not_faked", mutates_args=())
def not_faked(x: Tensor) -> Tensor:
    """The fake kernel refuses what eager takes."""
    return x * 2


@not_faked.register_fake
def _(x: Tensor) -> Tensor:
    raise ValueError("no fakes")


register(not_faked, sample=lambda dtype: [torch.randn(3).to(dtype)], gradient=False)

WRITES = define("writes(Tensor x) -> Tensor", lambda x: x.add_(1).clone(), "CPU")
register(WRITES, sample=lambda dtype: [torch.randn(3).to(dtype)])

COUNT = [0]


def _counts(x: Tensor) -> Tensor:
    COUNT[0] += 1
    return x + COUNT[0]


COUNTS = define("counts(Tensor x) -> Tensor", _counts, "CPU")
register(COUNTS, sample=lambda dtype: [torch.zeros(3, dtype=dtype)])


class _Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


BADLY_DERIVED = define("badly_derived(Tensor x) -> Tensor", _Halved.apply)
register(BADLY_DERIVED, sample=lambda dtype: [torch.arange(3).to(dtype)], reference=lambda x: x**3)


def _ends_the_process(x: Tensor) -> Tensor:
    if not x.numel():
        os.kill(os.getpid(), signal.SIGSEGV)
    return x.clone()


register(
    define("ends_the_process(Tensor x) -> Tensor", _ends_the_process),
    sample=lambda dtype: [torch.ones(3, dtype=dtype)],
)


def clips_negative(gm: torch.fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., Any]:
    """A backend of ``torch.compile`` whose results are never negative."""
    return lambda *args: tuple(out.clamp(min=0) for out in gm(*args))


def doubles_gradients(gm: torch.fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., Any]:
    """A backend of ``torch.compile`` whose gradients are twice what they should be."""
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    def twice(backward: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        return make_boxed_func(lambda *args: [2 * out if isinstance(out, Tensor) else out for out in backward(*args)])

    return aot_autograd(fw_compiler=lambda graph, inputs: make_boxed_func(graph.forward), bw_compiler=twice)(
        gm, example_inputs
    )


def changes_nothing(gm: torch.fx.GraphModule, example_inputs: list[Tensor]) -> Callable[..., Any]:
    """A backend of ``torch.compile`` that is right."""
    return gm.forward


def _rows(x: Tensor, places: Tensor) -> Tensor:
    torch._check(places.dtype == torch.int64, lambda: "places has to be int64")
    return x.index_select(0, places)


define("rows(Tensor x, Tensor places) -> Tensor", _rows)


define("joined(Tensor[] xs, int dim=0) -> Tensor", lambda xs, dim=0: torch.cat(list(xs), dim))


def _writes_a_file(x: Tensor, name: str) -> Tensor:
    Path(name).write_text("written")
    return x.clone()


define("writes_a_file(Tensor x, str name) -> Tensor", _writes_a_file)


def _takes_nothing(x: Tensor) -> Tensor:
    raise ValueError("this op takes nothing at all")


define("takes_nothing(Tensor x) -> Tensor", _takes_nothing)


layer = torch.nn.Linear(4, 3)
