"""PyTorch's settings: put back when a program leaves others, guarded when it reads them."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

TARGET = "evaluator"


def x(number: int = 0) -> torch.Tensor:
    return torch.arange(3.0) + number


def _put_benchmark(value: bool) -> None:
    with _settable():  # PyTorch's own test modules forbid it for the rest of the process
        torch.backends.cudnn.benchmark = value


_settable = getattr(torch.backends, "__allow_nonbracketed_mutation")

# How a setting is asked for, how it is set, and another value for it.
SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Any]] = {
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms, True),
    "debug mode": (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
    "threads": (torch.get_num_threads, torch.set_num_threads, 3),
    "precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
    "device": (
        torch.get_default_device,
        lambda v: torch.set_default_device(None if v.type == "cpu" else v),
        torch.device("meta"),
    ),
    "anomalies": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "warnings": (torch.is_warn_always_enabled, torch.set_warn_always, True),
    "dtype": (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "fill": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda v: setattr(torch.utils.deterministic, "fill_uninitialized_memory", v),
        False,
    ),
    "cudnn": (
        lambda: torch.backends.cudnn.benchmark,
        _put_benchmark,
        True,
    ),
    "printing": (
        lambda: torch._tensor_str.PRINT_OPTS.precision,
        lambda v: torch.set_printoptions(precision=v),
        2,
    ),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_a_program_leaves_is_refused_and_put_back(name: str) -> None:
    get, put, other = SETTINGS[name]
    was = get()
    assert was != other

    def program(x):
        put(other)
        return x * 2

    try:
        with pytest.raises(Unsupported, match=r"leaves another(.|\n)*test_settings\.py:\d+"):
            compile(program, (x(),), TARGET)
        assert get() == was
    finally:
        put(was)


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_a_program_reads_is_guarded(name: str) -> None:
    get, put, other = SETTINGS[name]
    was = get()

    def program(x):
        return x * (3 if get() == other else 2)

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 2)
    try:
        put(other)
        with pytest.raises(GuardError, match="when compiled"):
            exe(x())
    finally:
        put(was)
    assert torch.equal(exe(x()), x() * 2)


def test_a_setting_that_is_set_and_put_back_in_the_program() -> None:
    def program(x):
        was = torch.get_num_threads()
        torch.set_num_threads(3)
        y = x * torch.get_num_threads()
        torch.set_num_threads(was)
        return y

    exe = compile(program, (x(),), TARGET)
    assert torch.equal(exe(x()), x() * 3)


def test_a_setting_that_the_compiler_changes_itself() -> None:
    with pytest.raises(Unsupported, match="mkldnn"):
        compile(lambda x: x * (2 if torch.backends.mkldnn.enabled else 3), (x(),), TARGET)


def test_denormals_that_a_program_flushes() -> None:
    tiny = torch.full((4,), 1e-40)

    def program(x):
        torch.set_flush_denormal(True)
        return x * 2

    with pytest.raises(Unsupported, match="denormal"):
        compile(program, (x(),), TARGET)
    assert bool((tiny * 1.0 != 0).all())


def test_a_device_on_which_tensors_are_made() -> None:
    exe = compile(lambda x: x + torch.ones(3), (x(),), TARGET)
    try:
        torch.set_default_device("meta")
        with pytest.raises(GuardError, match="the default device is another"):
            exe(torch.zeros(3, device="cpu"))
    finally:
        torch.set_default_device(None)
    with torch.device("meta"), pytest.raises(GuardError, match="the default device is another"):
        exe(torch.zeros(3, device="cpu"))
    assert torch.equal(exe(x()), x() + 1)
