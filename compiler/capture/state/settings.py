"""PyTorch's settings that a program may change or read: how each is asked for and set, and which names read it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import torch

from torchstone.compiler._torch import settings as private
from torchstone.compiler.capture.state.questions import Question
from torchstone.compiler.diagnostics import Unsupported


@dataclass(frozen=True, slots=True)
class Setting:
    """``names`` are those of the functions and modules by which a program reads it."""

    what: str
    get: Callable[[], Any]
    put: Callable[[Any], Any]
    names: frozenset[str] = frozenset()


def _printing() -> Any:
    return tuple(vars(private.print_options).items())


def _autocast() -> Any:
    return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()


def _put_autocast(was: Any) -> None:
    torch.set_autocast_enabled("cpu", was[0])
    torch.set_autocast_dtype("cpu", was[1])
    torch.set_autocast_cache_enabled(was[2])


def _flushes() -> bool:
    smallest = 5e-324  # the processor does the same to Python's numbers
    return smallest * 1.0 == 0.0


def _anomalies() -> Any:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _opt_einsum() -> Any:
    return torch.backends.opt_einsum.enabled, torch.backends.opt_einsum.strategy


def _put_opt_einsum(was: Any) -> None:
    torch.backends.opt_einsum.enabled, torch.backends.opt_einsum.strategy = was


_BACKENDS = frozenset({"backends", "cudnn", "mkldnn", "cuda", "nnpack", "opt_einsum", "mha", "cpu"})


def _flag(name: str) -> Setting:
    get, put = private.flag(name)

    def ask() -> Any:
        with contextlib.suppress(RuntimeError):  # of some PyTorch says nothing, where others were set in another way
            return get()

    return Setting(name.replace("_", " "), ask, put, _BACKENDS)


def _attention(name: str) -> Setting:
    return Setting(f"use of {name} attention", *private.attention(name), _BACKENDS)


def _named(what: str, get: Callable[[], Any], put: Callable[[Any], Any], *names: str) -> Setting:
    return Setting(what, get, put, frozenset(names))


SETTINGS = (
    _named("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    _named("default dtype", torch.get_default_dtype, torch.set_default_dtype),
    _named("default device", private.default_device, torch.set_default_device, "get_default_device"),
    _named("autocast", _autocast, _put_autocast, "is_autocast_cache_enabled"),
    _named(
        "mode of deterministic algorithms", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode,
        "get_deterministic_debug_mode", "are_deterministic_algorithms_enabled",
        "is_deterministic_algorithms_warn_only_enabled",
    ),
    _named(
        "fill of uninitialized memory", private.get_uninitialized_fill, private.set_uninitialized_fill,
        "fill_uninitialized_memory",
    ),
    _named("number of threads", torch.get_num_threads, torch.set_num_threads, "get_num_threads"),
    _named(
        "float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision,
        "get_float32_matmul_precision",
    ),
    _named(
        "mode of detecting anomalies", _anomalies, lambda was: torch.set_anomaly_enabled(*was),
        "is_anomaly_enabled", "is_anomaly_check_nan_enabled",
    ),
    _named("rule for repeated warnings", torch.is_warn_always_enabled, torch.set_warn_always, "is_warn_always_enabled"),
    _named(
        "way of printing tensors", _printing, lambda was: vars(private.print_options).update(was), "PRINT_OPTS",
        "get_printoptions",
    ),
    _named("treatment of denormal numbers", _flushes, torch.set_flush_denormal),
    _named("level below which nothing is logged", lambda: logging.root.manager.disable, logging.disable),
    Setting("strategy of einsum", _opt_einsum, _put_opt_einsum, _BACKENDS),
    *map(_flag, private.FLAGS),
    *map(_attention, private.ATTENTION),
)  # fmt: skip


# The compiler turns oneDNN off while it records: a program would read that.
_ONEDNN = frozenset({"enabled", "flags", "set_flags", "is_enabled"})


def check_readable(named: Callable[[Collection[str]], bool]) -> None:
    """Unsupported for a program that asks whether oneDNN is on."""
    if named({"mkldnn"}) and named(_ONEDNN):
        raise Unsupported("the program reads or sets torch.backends.mkldnn.enabled, which is off here", stage="capture")


def read_settings(named: Callable[[Collection[str]], bool]) -> list[Question]:
    """Return the settings that a program reads, if ``named`` says that it names any of what reads them."""
    return [Question(f"the {s.what}", s.get, s.get()) for s in SETTINGS if s.names and named(s.names)]
