"""PyTorch's own compiler: ``torch.compile`` with the inductor backend, the whole program in one graph.

Every verdict carries the kernels that inductor generated, and the ATen ops that ran during the call all the same.
"""

from __future__ import annotations

import os
import re
import shutil
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar
from unittest import mock

from torchstone.compiler._torch import dynamo
from torchstone.conformance.backends.adapters import inductor_warm_files
from torchstone.conformance.backends.adapters.inductor_order import programs_apart
from torchstone.conformance.backends.dynamo_errors import told_apart
from torchstone.conformance.backends.eager_ops import eager_ops
from torchstone.conformance.backends.protocol import (
    LEFT_BY,
    Availability,
    Backend,
    counted,
)

if TYPE_CHECKING:
    from torch import Tensor


class Inductor:
    """Of a program that takes gradients the forward part is compiled, and its backward with it, as in training.

    Each program is compiled from scratch: inductor's caches of finished graphs are off, and dynamo is reset where no
    program of before is in use.

    What dynamo cannot put into one graph is ``unsupported`` at capture. An op that inductor leaves to ATen, for want of
    a lowering or by choice, is eager's own: a ``fallback``. So would be a program that dynamo runs in eager unasked.
    """

    name = "inductor"
    executors = ("inductor",)
    options = ("cuda",)
    # Measured beside programs of which 32 are compiled as one, which take 0.3 s each: new sizes may be graphs of their
    # own, and so is each rewritten program.
    costs: ClassVar = {"backward": 6, "rewritten": 6, "batch": 10, "dynamic": 36, "draws": 6, "control flow": 6}

    def __init__(self) -> None:
        self._in_use: weakref.WeakSet[_Executable] = weakref.WeakSet()

    def configured(self, options: Sequence[str]) -> Backend:
        """Return inductor for a CUDA device."""
        from torchstone.conformance.backends.cuda import OnCuda

        return OnCuda(self)

    def available(self) -> Availability:
        compiler = os.environ.get("CXX", "g++")
        if shutil.which(compiler) or shutil.which("clang++"):
            return Availability(True)
        return Availability(False, f"no C++ compiler ({compiler})", "apt-get install g++  # or set CXX")

    def versions(self) -> dict[str, str]:
        return {"torch": version("torch")}

    def warm_up(self) -> None:
        """Compile one kernel: the first one also compiles headers, unless they are kept, and probes the CPU."""
        import torch

        with inductor_warm_files.kept():
            self.compile(lambda x: x + 1, (torch.ones(8),))

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        return self._compile(fn, args, dynamic=False)

    def compile_dynamic(
        self, fn: Callable[..., Any], args: tuple[Tensor, ...], dims: tuple[tuple[int, ...], ...]
    ) -> Callable[..., Any]:
        """Compile with every size free: torch.compile has no way of freeing some, but to mark the tensors."""
        return self._compile(fn, args, dynamic=True)

    def _compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...], dynamic: bool) -> Callable[..., Any]:
        import torch

        from torchstone.conformance.program.fx import compiled_forward, keeps_graph, takes_gradients
        from torchstone.conformance.program.member_names import is_bundle
        from torchstone.conformance.program.tensor_storage import copy_tensors

        if not self._in_use:  # a program that may be called again would be compiled again
            dynamo.reset()
        sources: list[str] = []
        left: dict[str, list[int]] = {}
        settings = partial(_settings, keeps_graph(fn), left if is_bundle(fn) else None)
        # a hook, None by default
        hook = mock.patch.object(dynamo.GraphLowering, "save_output_code", sources.append, create=True)
        with settings(), hook:
            compiled = compiled_forward(
                fn, args, lambda function: torch.compile(function, fullgraph=True, dynamic=dynamic, backend="inductor")
            )
            with told_apart():  # torch.compile works at the first call: make one, on copies
                compiled(*copy_tensors(args))
        kernels = [kernel for source in sources for kernel in _KERNEL.findall(source)]
        executable = _Executable(compiled, kernels, AUTOGRADS_OWN if takes_gradients(fn) else (), settings)
        executable.left = {op: list(numbers) for op, numbers in left.items()}
        executable.stages = {"output code": "\n".join(sources)}
        self._in_use.add(executable)
        return executable


class _Executable:
    """What torch.compile returned, with the evidence of its first call."""

    def __init__(
        self,
        compiled: Callable[..., Any],
        kernels: list[str],
        not_its_own: Collection[str],
        settings: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.compiled = compiled
        self.kernels = kernels
        self.not_its_own = not_its_own
        self.settings = settings
        self.evidence: dict[str, Any] = {}
        self.stages: dict[str, str] = {}
        self.left: dict[str, list[int]] = {}

    def __call__(self, *args: Tensor) -> Any:
        if self.evidence:
            with self.settings():
                return self.compiled(*args)
        with self.settings(), eager_ops() as ops:
            results = self.compiled(*args)
        left = (name for name in ops.elements() if name not in self.not_its_own)
        ran = {"inductor": counted(self.kernels), "eager": counted(left)}
        self.evidence = {"ran": {executor: told for executor, told in ran.items() if told}}
        if self.left:
            self.evidence[LEFT_BY] = self.left
        return results


AUTOGRADS_OWN = ("aten::zeros", "aten::copy_", "torch::autograd::GraphRoot")
"""What autograd runs between what is compiled: gradients that are zero, and those that have to lie in another order.

The last is where it begins, for several results, and no op at all.
"""

# In the code that inductor writes for a graph, a kernel of its own is compiled into a name.
_KERNEL = re.compile(r"^(\w+) = async_compile\.\w+\(", re.MULTILINE)

# A cache of finished graphs would let one case answer for another; the C++ cache below it is keyed by the code.
_OPTIONS = {"fx_graph_cache": False, "compile_threads": 1}

GRAPHS = 64
"""How many graphs may be made of a program. PyTorch gives up after 8, which is no answer to the sizes after these."""


@contextmanager
def _settings(keeps_graph: bool, left: dict[str, list[int]] | None) -> Iterator[None]:
    """How PyTorch compiles, at the first call and at those later on for which it compiles again.

    Of a bundle, ``left`` is told which program leaves what to ATen.
    """
    with (
        dynamo.inductor_config.patch(_OPTIONS),
        dynamo.config.patch(suppress_errors=False, recompile_limit=GRAPHS),
        # PyTorch's own remedy: such a backward graph may not reuse the memory of what the forward graph keeps.
        dynamo.functorch_config.patch(donated_buffer=not keeps_graph),
        nullcontext() if left is None else programs_apart(left),
    ):
        yield
