"""Engines from the call to the cache, on TensorRT where it is (``make gpu``), else on the simulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone import Dim, compile
from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.runtime.tensorrt import api
from torchstone.compiler.runtime.tensorrt.engine_cache import EngineCacheWarning

CUDA = torch.cuda.is_available()
DEVICES = ["cpu", *(["cuda"] if CUDA else [])]


def block() -> torch.nn.Module:
    torch.manual_seed(1)
    conv = torch.nn.Conv2d(3, 4, 3, padding=1)
    return torch.nn.Sequential(conv, torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)).eval()


def scores(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ w, -1)


def close(exe: Callable[..., Any], model: Callable[..., Any], *args: torch.Tensor) -> None:
    torch.testing.assert_close(exe(*args), model(*args), rtol=1e-4, atol=1e-5)


def test_what_was_asked_for_is_what_runs() -> None:
    exe = compile(scores, (torch.randn(3, 4), torch.randn(4, 2)), "tensorrt")
    assert exe._kernel.runtime == str(api())


@pytest.mark.parametrize("freeze", [False, True])
def test_a_block_of_layers(freeze: bool) -> None:
    model = block().requires_grad_(False)
    x = torch.randn(2, 3, 8, 8)
    exe = compile(model, (x,), "tensorrt", freeze=freeze)
    close(exe, model, x)
    close(exe, model, torch.randn(2, 3, 8, 8))


@pytest.mark.parametrize("device", DEVICES)
def test_results_are_where_the_inputs_are(device: str) -> None:
    x, w = torch.randn(3, 4, device=device), torch.randn(4, 2, device=device)
    exe = compile(scores, (x, w), "tensorrt")
    assert exe(x, w).device == x.device
    close(exe, scores, x, w)
    close(exe, scores, x.t().contiguous().t(), w)


@pytest.mark.skipif(not CUDA, reason="there is no CUDA device")
def test_a_call_is_ordered_with_its_stream() -> None:
    x, w = torch.zeros(512, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    exe = compile(scores, (x, w), "tensorrt")
    exe(x, w)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):  # work that the engine has to wait for
            x.add_(w @ w)
        out = exe(x, w)
    stream.synchronize()
    torch.testing.assert_close(out, scores(x, w), rtol=1e-4, atol=1e-5)


def test_one_profile_for_all_sizes() -> None:
    dims = ({0: Dim("n", min=1, opt=8, max=64)}, None)
    w = torch.randn(4, 2)
    exe = compile(scores, (torch.randn(3, 4), w), "tensorrt", dims)
    for n in (1, 3, 8, 64):
        close(exe, scores, torch.randn(n, 4), w)
    assert exe._kernel.builds == 1 and exe._kernel._engine.num_optimization_profiles == 1
    with pytest.raises(GuardError, match="65"):
        exe(torch.randn(65, 4), w)


def test_several_profiles() -> None:
    profiles = [{"n": (1, 1, 1)}, {"n": (2, 8, 32)}]
    w = torch.randn(4, 2)
    exe = compile(scores, (torch.randn(3, 4), w), "tensorrt", ({0: Dim("n")}, None), profiles=profiles)
    for n in (1, 2, 1, 32, 7):
        close(exe, scores, torch.randn(n, 4), w)
    assert exe._kernel.builds == 1 and exe._kernel._engine.num_optimization_profiles == 2


def test_a_kept_engine_is_not_built_again_and_a_damaged_one_is(tmp_path: Path) -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 2)

    def builds() -> int:
        exe = compile(scores, (x, w), "tensorrt", engine_cache=tmp_path)
        close(exe, scores, x, w)
        return exe._kernel.builds

    assert [builds(), builds()] == [1, 0]
    (kept,) = tmp_path.iterdir()
    whole = kept.read_bytes()
    for damaged in (whole[:-1], whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:], b""):
        kept.write_bytes(damaged)
        with pytest.warns(EngineCacheWarning, match=kept.name):
            assert builds() == 1
        assert builds() == 0


def test_timings_are_kept_in_a_file_and_foreign_ones_replaced(tmp_path: Path) -> None:
    x, w = torch.randn(3, 4), torch.randn(4, 2)
    file = tmp_path / "timing"
    for before in (None, b"of another device"):
        if before is not None:
            file.write_bytes(before)
        close(compile(scores, (x, w), "tensorrt", timing_cache=file, workspace=1 << 26), scores, x, w)
        assert file.stat().st_size > 20 or not api().real
        assert file.read_bytes() != before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int32, torch.int64, torch.bool])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (5, 3)).to(dtype)
    exe = compile(lambda x: (x.flip(0), x == x.roll(1)), (x,), "tensorrt")
    for got, want in zip(exe(x), (x.flip(0), x == x.roll(1)), strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)


def test_a_tensor_without_elements() -> None:
    w = torch.randn(4, 2)
    close(compile(scores, (torch.empty(0, 4), w), "tensorrt"), scores, torch.empty(0, 4), w)


def test_loops_and_conditionals() -> None:
    def powers(x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.cumsum(0), lambda x: x - 1, (x,))

    exe = compile(powers, (torch.ones(5),), "tensorrt")
    for x in (torch.randn(5).abs(), -torch.randn(5).abs()):
        close(exe, powers, x)
