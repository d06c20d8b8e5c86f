"""Code held to a level of x86-64: what it may use, that it computes the same, and what is refused."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import torchstone
from tests.compiler.flat import magnitudes, special
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.mlir import bindings
from torchstone.compiler.runtime.cpu import cache, jit, level

pytestmark = pytest.mark.skipif(level.refusal() != "", reason="levels of an x86-64")
HELD = [name for name in level.LEVELS[1:] if not level.unavailable(name)]


@pytest.fixture(params=HELD)
def held(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(level.VARIABLE, request.param)
    return request.param


def program(x: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x * 2.5 + x.flip(0), (x @ x.mT).relu(), h * h + h, x.exp().sum(1)


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump, of binutils, reads machine code")
def test_the_machine_code_has_no_instruction_beyond_the_level(
    held: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engines: list[jit.Engine] = []
    add = cache.CACHE.add
    monkeypatch.setattr(cache.CACHE, "add", lambda engine, made: (engines.append(engine), add(engine, made)))
    torchstone.compile(program, (torch.randn(300, 70), torch.randn(2**21).half()))
    text = ""
    for number, engine in enumerate(engines):
        engine._engine.dump_to_object_file(str(tmp_path / f"{number}.o"))
        command = ["objdump", "--disassemble", "--no-show-raw-insn", str(tmp_path / f"{number}.o")]
        text += subprocess.run(command, capture_output=True, text=True, check=True).stdout
    used = {
        "x86-64-v2": "%xmm" in text,
        "x86-64-v3": bool(re.search(r"%ymm|vfmadd|vcvtph2ps", text)),
        "x86-64-v4": bool(re.search(r"%zmm|%k[1-7]", text)),
    }
    at = HELD.index(held)
    assert used == {name: index <= at for index, name in enumerate(used)}


def test_every_level_computes_the_same(held: str) -> None:
    x, h = torch.randn(30, 7), torch.randn(300).half()
    torch.testing.assert_close(torchstone.compile(program, (x, h))(x, h), program(x, h))


def test_conversions_of_halves_are_those_of_the_hardware(held: str) -> None:
    found = jit.helpers(bindings())

    def bits(name: str, x: torch.Tensor) -> torch.Tensor:
        """What the function makes of floats of these bits, which go through no float of Python."""
        text = f"""
        llvm.func @{name}(f32) -> f32
        llvm.func @main(%from: !llvm.ptr, %to: !llvm.ptr) {{
          %x = llvm.load %from : !llvm.ptr -> f32
          %y = llvm.call @{name}(%x) : (f32) -> f32
          llvm.store %y, %to : f32, !llvm.ptr
          llvm.return
        }}"""
        engine = jit.Engine(bindings().ir.Module.parse(text, bindings().shared_context), symbols=found)
        function, out = engine.function([ctypes.c_size_t] * 2), torch.empty_like(x)
        for at in range(0, 4 * len(x), 4):
            function.call(x.data_ptr() + at, out.data_ptr() + at)
        return out

    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32)
    wide = bits("__extendhfsf2", halves & 0xFFFF).view(torch.float32)
    want = halves.to(torch.int16).view(torch.float16).float()
    assert torch.equal(wide.nan_to_num(7), want.nan_to_num(7)) and torch.equal(wide.signbit(), want.signbit())
    assert torch.equal(wide.isnan(), want.isnan())
    ties = want[want.isfinite()].double()
    beside = torch.cat([(ties[1:] + ties[:-1]).float() / 2, want, magnitudes(400_009), special(torch.float32)])
    x = torch.cat([beside, beside.nextafter(torch.tensor(torch.inf)), beside.nextafter(torch.tensor(-torch.inf))])
    got = bits("__truncsfhf2", x.view(torch.int32)).to(torch.int16).view(torch.float16)
    assert torch.equal(got.isnan(), x.isnan())
    assert torch.equal(got.nan_to_num(7).view(torch.int16), x.half().nan_to_num(7).view(torch.int16))


def test_a_level_is_part_of_the_key_of_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled() -> int:
        before = cache.CACHE.hits
        torchstone.compile(lambda x: x * 3.25 - 1, (torch.ones(5),))
        return cache.CACHE.hits - before

    monkeypatch.setenv(level.VARIABLE, HELD[0])
    compiled()
    assert compiled() == 1
    monkeypatch.setenv(level.VARIABLE, level.NATIVE)
    assert compiled() == 0


def test_a_level_that_does_not_exist_or_that_the_processor_has_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(wanted: str) -> str:
        monkeypatch.setenv(level.VARIABLE, wanted)
        with pytest.raises(TorchstoneError) as caught:
            torchstone.compile(lambda x: x + 1, (torch.ones(3),))
        assert caught.value.stage == "compile"
        return caught.value.message

    assert "no level 'x86-64v3' (did you mean \"x86-64-v3\"?)" in refused("x86-64v3")
    older = frozenset(level._FLAGS["x86-64-v2"].split()) | {"avx"}
    monkeypatch.setattr(level, "flags", lambda: older)
    assert refused("x86-64-v3").startswith("TORCHSTONE_CPU_LEVEL: x86-64-v3 needs abm, avx2, bmi1")
    assert level.unavailable("x86-64-v2") == ""
    monkeypatch.setattr(level, "flags", frozenset)
    assert level.unavailable("x86-64-v4") == ""


def test_another_architecture_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    for target in ("linalg", "tosa"):
        with pytest.raises(TorchstoneError, match="makes code for x86-64, and this is aarch64: take the target eval"):
            torchstone.compile(lambda x: x + 1, (torch.ones(3),), target=target)
    for target in ("evaluator", "tensorrt"):
        assert torch.equal(
            torchstone.compile(lambda x: x + 1, (torch.ones(3),), target=target)(torch.ones(3)), torch.full((3,), 2.0)
        )
