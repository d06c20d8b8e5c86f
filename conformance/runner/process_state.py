"""What a call into a backend must not leave changed in its process, and how it is put right.

Settings are read before each call and set back after it, each one row of a table. PyTorch's public functions and a few
modules are kept as they were when the worker started: a backend that has replaced one gets its answer judged by the
original, and its worker is given up, for who replaces what can be seen may have replaced what cannot.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import fcntl
import functools
import gc
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler._torch import dynamo, modes
from torchstone.compiler._torch.operators import nn_functions
from torchstone.compiler._torch.settings import get_onednn, set_onednn

MISSING = object()
WATCHED: tuple[tuple[str, Any], ...] = (
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.functional", torch.nn.functional),
    ("torch.linalg", torch.linalg),
    ("torch.fft", torch.fft),
    ("torch.special", torch.special),
    (nn_functions.__name__, nn_functions),
    ("builtins", builtins),
    ("time", time),
)
LIMITS = tuple(
    getattr(resource, name)
    for name in ("RLIMIT_AS", "RLIMIT_CPU", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_STACK")
)
SPARE = 512  # from where stdout and stderr are kept, out of the way of who closes what he finds
SMALLEST = sys.float_info.min
_environment: dict[bytes, bytes] = getattr(os.environ, "_data")  # what os.environb gives, a hundred times as fast  # noqa: B009


@dataclass(frozen=True)
class ProcessSetting:
    """One thing that a process has one of."""

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], object]


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _set_environment(wanted: dict[bytes, bytes]) -> None:
    for key in set(os.environb) - set(wanted):
        del os.environb[key]
    for key, value in wanted.items():
        if os.environb.get(key) != value:
            os.environb[key] = value


def _set_folder(wanted: str) -> None:
    os.makedirs(wanted, exist_ok=True)
    os.chdir(wanted)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _set_limits(wanted: tuple[tuple[int, int], ...]) -> None:
    for limit, pair in zip(LIMITS, wanted, strict=True):
        resource.setrlimit(limit, pair)


def _floating() -> tuple[bool, int]:
    """Whether subnormal numbers are kept, and how the processor rounds."""
    return SMALLEST * 0.5 > 0, _libm().fegetround()


def _set_floating(wanted: tuple[bool, int]) -> None:
    torch.set_flush_denormal(not wanted[0])
    _libm().fesetround(wanted[1])


@functools.cache
def _libm() -> Any:
    return ctypes.CDLL("libm.so.6")


SETTINGS = (
    ProcessSetting("the current folder", _folder, _set_folder),
    ProcessSetting("the umask", _umask, os.umask),
    ProcessSetting("the environment", lambda: dict(_environment), _set_environment),
    ProcessSetting("the resource limits", lambda: tuple(map(resource.getrlimit, LIMITS)), _set_limits),
    ProcessSetting(
        "the signal mask",
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        lambda mask: signal.pthread_sigmask(signal.SIG_SETMASK, mask),
    ),
    ProcessSetting(
        "a timer",
        lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        lambda _: signal.setitimer(signal.ITIMER_REAL, 0),
    ),
    ProcessSetting("flushing or rounding", _floating, _set_floating),
    ProcessSetting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    ProcessSetting("the trace function", sys.gettrace, sys.settrace),
    ProcessSetting("the profile function", sys.getprofile, sys.setprofile),
    ProcessSetting("garbage collection", gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    ProcessSetting("sys.stdout", lambda: sys.stdout, lambda stream: setattr(sys, "stdout", stream)),
    ProcessSetting("sys.stderr", lambda: sys.stderr, lambda stream: setattr(sys, "stderr", stream)),
    ProcessSetting("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    ProcessSetting("the modes in force", modes.depths, modes.leave_down_to),
    ProcessSetting("the number of threads", torch.get_num_threads, torch.set_num_threads),
    ProcessSetting("gradient mode", torch.is_grad_enabled, torch.set_grad_enabled),
    ProcessSetting(
        "deterministic algorithms",
        torch.get_deterministic_debug_mode,
        torch.set_deterministic_debug_mode,
    ),
    ProcessSetting("the precision of matmul", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    ProcessSetting(
        "autocast",
        lambda: torch.is_autocast_enabled("cpu"),
        lambda on: torch.set_autocast_enabled("cpu", on),
    ),
    ProcessSetting("oneDNN", get_onednn, set_onednn),
    ProcessSetting("anomaly mode", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
)


class ProcessState:
    """The process as it was before a call. ``spent`` says what could not be put right, if anything could not."""

    def __init__(self) -> None:
        self.spent = ""
        self._kept = [_contents(holder) for _, holder in WATCHED]
        self._dynamo = dynamo.is_loaded()  # it replaces functions of PyTorch's as it is imported
        self._values: list[Any] = []
        self._output = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, SPARE) for number in (1, 2)]

    def remember(self) -> None:
        """Read the settings; a call into the backend begins."""
        self._values = [setting.get() for setting in SETTINGS]

    def restore(self) -> list[str]:
        """Put right what the call changed; return the names of it."""
        changed = self._replaced()
        for number, spare in zip((1, 2), self._output, strict=True):
            with contextlib.suppress(OSError):  # of one who closes them all, it is not heard any more
                os.dup2(spare, number)
        for setting, before in zip(SETTINGS, self._values, strict=True):
            if setting.get() == before:
                continue
            changed.append(setting.name)
            with contextlib.suppress(Exception):
                setting.set(before)
            if setting.get() != before:
                self.spent = f"{setting.name} could not be set back"
        return changed

    def _replaced(self) -> list[str]:
        """Bring back the functions that were replaced; what was added may stay."""
        changed, was_loaded = [], self._dynamo
        self._dynamo = dynamo.is_loaded()
        for index, (name, holder) in enumerate(WATCHED):
            kept, values = self._kept[index]
            with contextlib.suppress(Exception):  # of an odd thing's comparison, which is another thing for sure
                if list(vars(holder).values()) == values:  # the same objects are found equal without being asked
                    continue
            for key, value in kept.items():
                now = vars(holder).get(key, MISSING)
                if now is not value and not (self._dynamo and not was_loaded and _of_torch(now)):
                    changed.append(f"{name}.{key}")
                    setattr(holder, key, value)
            self._kept[index] = _contents(holder)
        if changed:
            self.spent = f"{', '.join(changed[:3])} was replaced"
        return changed


def _of_torch(value: Any) -> bool:
    code = getattr(value, "__code__", None)
    where = code.co_filename if code else getattr(sys.modules.get(getattr(value, "__module__", "")), "__file__", "")
    return str(where).startswith(os.path.dirname(torch.__file__))


def _contents(holder: Any) -> tuple[dict[str, Any], list[Any]]:
    return dict(vars(holder)), list(vars(holder).values())
