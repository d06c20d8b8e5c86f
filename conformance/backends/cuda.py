"""A backend on a CUDA device: its programs are compiled for tensors there, and called with copies of the inputs.

What eager gives on the CPU stays what results are compared with. Where PyTorch promises another dtype on the device
(the statistics that ``native_batch_norm`` saves of 16-bit numbers are float32 there) a result is converted. Matrix
products and convolutions are computed in full float32: TF32 is off for as long as the backend works.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch import fake_tensors
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.pytrees import tree_flatten, tree_leaves, tree_map_only, tree_unflatten
from torchstone.compiler.diagnostics import Unsupported
from torchstone.conformance.backends.protocol import Availability, Backend
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.program.tensor_storage import copy_tensors, write_back

CUDA = "cuda"
CPU = torch.device("cpu")


class OnCuda:
    """The backend with its tensors on a CUDA device. (Tests move them to another one.)

    A device that an error has put out of order, as a failed assertion in a kernel does, is of no more use to its
    process: ``spent`` says so, and the worker ends after the case.
    """

    def __init__(self, backend: Backend, device: str = CUDA) -> None:
        self.backend = backend
        self.device = torch.device(device)
        self.name = f"{backend.name}+{CUDA}"
        self.executors = getattr(backend, "executors", ())
        self._lost = ""

    def available(self) -> Availability:
        inner = self.backend.available()
        if not inner.ok or self.device.type != CUDA or torch.cuda.is_available():
            return inner
        built = "PyTorch finds no CUDA device" if torch.version.cuda else "this build of PyTorch is without CUDA"
        return Availability(False, built, "" if torch.version.cuda else "pip install torch  # a build for CUDA")

    def versions(self) -> Mapping[str, str]:
        found = dict(self.backend.versions())
        if self.device.type == CUDA:
            found |= {"cuda": str(torch.version.cuda), "device": torch.cuda.get_device_name(self.device)}
        return found

    def warm_up(self) -> None:
        """Pay for the device's start and the backend's first compilation before the first case."""
        x = torch.ones(2)
        self.compile(lambda x: x + 1, (x,))(x)

    def spent(self) -> str:
        """Say why this process can compile and run nothing more; an empty string if it can."""
        return self._lost

    def compile(self, fn: Callable[..., Any], args: tuple[Tensor, ...]) -> Callable[..., Any]:
        with self._at_work():
            executable = self.backend.compile(_placed(fn, self.device), copy_tensors(args, self.device))
        return _Executable(self, executable, dtypes_apart(fn, args, self.device))

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Factories make their tensors on the device; errors that come late come here."""
        cudnn = torch.backends.cudnn
        flags = cudnn.flags(
            enabled=cudnn.enabled, benchmark=cudnn.benchmark, deterministic=cudnn.deterministic, allow_tf32=False
        )
        try:
            with flags if self.device.type == CUDA else contextlib.nullcontext(), self.device:
                yield
                self._synchronize()
        except torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
        except Exception as error:
            try:
                self._synchronize()
            except Exception as lost:
                self._lost = f"the device is out of order: {str(lost).strip().splitlines()[0]}"
            if reason := _declined(error, eager=getattr(self.backend, "executors", ()) == ("eager",)):
                raise Unsupported(reason, stage="run") from error
            raise

    def _synchronize(self) -> None:
        if self.device.type == CUDA:
            torch.cuda.synchronize(self.device)


class _Executable:
    """The backend's callable for tensors of the CPU: what it writes, returns and aliases there, it does here."""

    def __init__(
        self, home: OnCuda, executable: Callable[..., Any], dtypes: Mapping[int, tuple[torch.dtype, torch.dtype]]
    ) -> None:
        self.home = home
        self.executable = executable
        self.dtypes = dtypes

    @property
    def evidence(self) -> dict[str, Any]:
        return dict(getattr(self.executable, "evidence", None) or {}) | {"device": str(self.home.device)}

    def __call__(self, *args: Tensor) -> Any:
        with self.home._at_work():
            there = copy_tensors(args, self.home.device)
            results = self.executable(*there)
        storages = write_back(there, args)

        def back(result: Tensor) -> Tensor:
            if result.layout is not torch.strided or result.is_quantized:
                return result.to(CPU)
            return copy_tensors([result.detach()], CPU, storages)[0]

        results = tree_map_only(Tensor, back, results)
        if not self.dtypes:
            return results
        leaves, form = tree_flatten(results)
        for at, (there, here) in self.dtypes.items():
            if at < len(leaves) and isinstance(leaves[at], Tensor) and leaves[at].dtype == there:
                leaves[at] = leaves[at].to(here)
        return tree_unflatten(leaves, form)


def dtypes_apart(
    fn: Callable[..., Any], args: tuple[Tensor, ...], device: torch.device
) -> dict[int, tuple[torch.dtype, torch.dtype]]:
    """The results whose dtype on the device is another than on the CPU, by their place: both dtypes, as PyTorch's fake
    kernels have them. Nothing of a program that these cannot run.

    A fake kernel for the CPU may be wrong (of statistics of 16-bit numbers with weights of float32): where the two
    differ, eager is asked.
    """
    if device == CPU:
        return {}
    try:
        there, here = (_fake_leaves(_placed(fn, place), args, place) for place in (device, CPU))
        if _other_dtypes(there, here):
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                here = tree_leaves(fn(*copy_tensors(args)))
    except Exception:  # sizes that values decide, or an op without a fake kernel
        return {}
    return _other_dtypes(there, here)


def _other_dtypes(there: list[Any], here: list[Any]) -> dict[int, tuple[torch.dtype, torch.dtype]]:
    pairs = enumerate(zip(there, here, strict=False))
    return {
        at: (one.dtype, other.dtype)
        for at, (one, other) in pairs
        if isinstance(one, Tensor) and isinstance(other, Tensor) and one.dtype != other.dtype
    }


def _fake_leaves(fn: Callable[..., Any], args: tuple[Tensor, ...], device: torch.device) -> list[Any]:
    with fake_tensors.refusals_unlogged(), fake_tensors.FakeTensorMode(), torch.no_grad(), device:
        fakes = [torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device) for x in args]
        return tree_leaves(fn(*fakes))


_DECLINES = re.compile(r"(to|must) be on cpu|^(?!CUDA error).*\bnot (supported|implemented)\b", re.IGNORECASE)
_OTHER_DTYPES = re.compile(r"expected (scalar type \w+ but found|input and grad types to match)")


def _declined(error: Exception, eager: bool = False) -> str:
    """Say what PyTorch does not support on the device, or wants on the CPU, where every tensor is on the device.

    ``eager``: its kernels were given what the program says, so that dtypes which they do not take together are the
    program's. A compiler may have made them.
    """
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, NotImplementedError):  # of a dtype, or of an operator, with advice after it
        return lines[0].partition(". This could be because")[0]
    declines = (_DECLINES, _OTHER_DTYPES) if eager else (_DECLINES,)
    return next((line.strip() for line in lines if any(pattern.search(line) for pattern in declines)), "")


def _placed(fn: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """The program with the device in place of the CPU, where it names one, and in the branches and bodies of its
    control flow: dynamo, which PyTorch's eager ``cond`` calls too, traces these without the default device."""
    if not isinstance(fn, Program):
        return fn

    def leaf(value: Any) -> Any:
        if isinstance(value, Program):
            return _placed(value.rewrite(_made_on(device)), device)
        return device if value in (CPU, CPU.type) and isinstance(value, torch.device | str) else value

    return fn.rewrite(lambda call: call.map_arguments(leaf))


def _made_on(device: torch.device) -> Callable[[Call], Call]:
    """Calls of factories, which are given no tensor, with the device that they make theirs on."""

    def change(call: Call) -> Call:
        packet = getattr(torch.ops.aten, call.operator, None)
        overloads = [getattr(packet, name) for name in packet.overloads()] if packet is not None else []
        takes = any(argument.name == "device" for overload in overloads for argument in schema_of(overload).arguments)
        return replace(call, kwargs={"device": device, **call.kwargs}) if takes and not call.refs() else call

    return change
