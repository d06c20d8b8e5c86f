"""Engines kept in a folder: what their key is of, who reads them again, and which files are refused."""

from __future__ import annotations

import errno
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchstone import Dim, compile
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.ir import TensorType, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.lowering.tensorrt import lower_graph
from torchstone.compiler.runtime.tensorrt import Api, engine_cache
from torchstone.compiler.runtime.tensorrt import simulator as trt
from torchstone.compiler.runtime.tensorrt.engine import EngineKernel
from torchstone.compiler.runtime.tensorrt.engine_cache import EngineCacheWarning, Place
from torchstone.compiler.runtime.tensorrt.settings import Settings
from torchstone.compiler.runtime.tensorrt.simulator.plan import to_bytes
from torchstone.compiler.runtime.tensorrt.transcript import Transcript

from .graphs import graph_of, legal

HERE = Path(__file__).parent


def engine_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


# Keys


def frozen(folder: Path, weight: torch.Tensor, bias: float = 1.0) -> None:
    """Compile and run x @ weight.T + bias, of constants."""
    linear = torch.nn.Linear(2, 2).requires_grad_(False)
    linear.weight.copy_(weight)
    linear.bias.fill_(bias)
    exe = compile(linear, (torch.ones(3, 2),), "tensorrt", freeze=True, engine_cache=folder)
    torch.testing.assert_close(exe(torch.ones(3, 2)), linear(torch.ones(3, 2)))


WEIGHT = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
OTHER_BIT = (WEIGHT.view(torch.int32) ^ torch.tensor([[0, 0], [0, 1]], dtype=torch.int32)).view(torch.float32)


def test_a_bit_of_a_weight_is_in_the_key(tmp_path: Path) -> None:
    for files, row in enumerate(((WEIGHT,), (OTHER_BIT,), (WEIGHT, 0.0), (WEIGHT, -0.0)), 1):
        for _ in range(2):
            frozen(tmp_path, *row)
            assert len(engine_files(tmp_path)) == files


N = symbol("n")
ROWS = (N, 4)
BUILDS: dict[str, tuple[Callable[..., Any], TensorType]] = {
    "neg": (lambda b, x: b.neg(x), TensorType((4,), dt.float32)),
    "abs": (lambda b, x: b.abs(x), TensorType((4,), dt.float32)),
    "half": (lambda b, x: b.neg(x), TensorType((4,), dt.float16)),
    "size": (lambda b, x: b.neg(x), TensorType((5,), dt.float32)),
    "rank": (lambda b, x: b.neg(x), TensorType((4, 1), dt.float32)),
    "dynamic": (lambda b, x: b.neg(x), TensorType((N,), dt.float32)),
    "named": (lambda b, x: b.neg(x), TensorType((symbol("m"),), dt.float32)),
    "twice": (lambda b, x: b.neg(b.neg(x)), TensorType((4,), dt.float32)),
    "outputs": (lambda b, x: (b.neg(x), b.abs(x)), TensorType((4,), dt.float32)),
    "swapped": (lambda b, x: (b.abs(x), b.neg(x)), TensorType((4,), dt.float32)),
    "first": (lambda b, x: b.slice(x, 0, 0, 2), TensorType((4, 4), dt.float32)),
    "second": (lambda b, x: b.slice(x, 0, 1, 2), TensorType((4, 4), dt.float32)),
    "dim": (lambda b, x: b.slice(x, 1, 0, 2), TensorType((4, 4), dt.float32)),
    "rows": (lambda b, x: b.transpose(x, (1, 0)), TensorType(ROWS, dt.float32)),
    "square": (lambda b, x: b.transpose(x, (1, 0)), TensorType((4, 4), dt.float32)),
    "plus": (lambda b, x: b.add(x, b.full(1.0, (4,), dt.float32)), TensorType((4,), dt.float32)),
    "zero": (lambda b, x: b.add(x, b.full(0.0, (4,), dt.float32)), TensorType((4,), dt.float32)),
    "minus": (lambda b, x: b.add(x, b.full(-0.0, (4,), dt.float32)), TensorType((4,), dt.float32)),
    "epsilon": (lambda b, x: b.emit("normalize", x, dims=(1,), eps=1e-5)[0], TensorType((4, 4), dt.float32)),
    "another epsilon": (lambda b, x: b.emit("normalize", x, dims=(1,), eps=1e-6)[0], TensorType((4, 4), dt.float32)),
    "gelu": (lambda b, x: b.emit("gelu", x, approximate="none")[0], TensorType((4,), dt.float32)),
    "gelu by tanh": (lambda b, x: b.emit("gelu", x, approximate="tanh")[0], TensorType((4,), dt.float32)),
    "softmax": (lambda b, x: b.emit("softmax", x, dim=0)[0], TensorType((4, 4), dt.float32)),
    "another softmax": (lambda b, x: b.emit("softmax", x, dim=1)[0], TensorType((4, 4), dt.float32)),
    "nan": (lambda b, x: b.add(x, b.full(float("nan"), (4,), dt.float32)), TensorType((4,), dt.float32)),
}


def test_networks_that_differ_have_different_keys() -> None:
    """And only they: the plan of the simulator holds all of a network, and keys differ where plans do."""

    def made(build: Callable[..., Any], kind: TensorType) -> tuple[str, bytes]:
        program = lower_graph(legal(graph_of(build, [kind])))
        return program.transcript.digest(), to_bytes(program.network, [])

    first = [made(*row) for row in BUILDS.values()]
    again = [made(*row) for row in BUILDS.values()]
    assert first == again
    assert len({key for key, _ in first}) == len({plan for _, plan in first}) == len(BUILDS)


def test_what_else_is_in_the_key() -> None:
    made = {"tensorrt": "10.3.0", "device": "A", "platform": "Linux x86_64"}
    told: dict[str, Any] = {"flags": {"TF32": False}, "workspace": None, "profiles": [{"x": ((1,), (2,), (3,))}]}
    rows = [("n", made, told), ("m", made, told)]
    rows += [("n", {**made, name: "another"}, told) for name in made]
    rows += [("n", made, {**told, "flags": {"TF32": True}}), ("n", made, {**told, "workspace": 1})]
    rows += [("n", made, {**told, "profiles": [{"x": ((1,), (2,), (4,))}]}), ("n", made, {**told, "profiles": []})]
    keys = [engine_cache.key_of(*row) for row in rows]
    assert len(set(keys)) == len(rows)
    assert engine_cache.key_of("n", dict(reversed(made.items())), told) == keys[0]


@pytest.mark.parametrize("changed", [{"workspace": 1 << 20}, {"profiles": [{"n": (1, 2, 9)}]}, {}])
def test_settings_are_in_the_key(tmp_path: Path, changed: dict[str, Any]) -> None:
    for options in ({"profiles": [{"n": (1, 2, 8)}]}, {"profiles": [{"n": (1, 2, 8)}], **changed}):
        compile(torch.exp, (torch.ones(2),), "tensorrt", ({0: Dim("n")},), engine_cache=tmp_path, **options)
    assert len(engine_files(tmp_path)) == (2 if changed else 1)


def test_the_device_is_the_one_that_torch_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert engine_cache.made_by(Api(trt, True, ""))["device"] == "NVIDIA H200, compute capability 9.0"
    assert engine_cache.made_by(Api(trt, False, ""))["device"] == "simulator"


def test_a_transcript_takes_nothing_that_it_cannot_tell_apart() -> None:
    """An object would go by its address, an array of no shape by its bytes."""
    transcript = Transcript(trt)
    with pytest.raises(TypeError, match="a transcript does not take object"):
        transcript.add("layer", object())
    digests = set()
    arrays = (np.zeros(2, np.int32), np.zeros(1, np.int64), np.zeros((1, 2), np.int32), trt.Weights(trt.DataType.HALF))
    for given in (0, 0.0, -0.0, False, None, "0", [0], {0: 0}, trt.DataType.FLOAT, trt.UnaryOperation.EXP, *arrays):
        transcript = Transcript(trt)
        transcript.add("layer", given)
        digests.add(transcript.digest())
    assert len(digests) == 14


# Files


def sums(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ y, -1)


ARGS = (torch.arange(6.0).reshape(2, 3), torch.ones(3, 4))


def built(folder: Path) -> int:
    """Compile ``sums``, and return how many engines that built."""
    exe = compile(sums, ARGS, "tensorrt", engine_cache=folder)
    torch.testing.assert_close(exe(*ARGS), sums(*ARGS))
    return exe._kernel.builds


PROGRAM = f"""
import sys
sys.path.insert(0, {str(HERE.parents[2])!r})
from pathlib import Path
from tests.compiler.tensorrt.test_engine_cache import WEIGHT, built, frozen, trt

trt.Builder.build_serialized_network = None
frozen(sys.argv[1], WEIGHT)
print(built(Path(sys.argv[1])))
"""


@pytest.mark.torture
def test_another_process_reads_what_was_built(tmp_path: Path, warm_compiler: Any) -> None:
    script, folder = tmp_path / "program.py", tmp_path / "a" / "cache"
    script.write_text(PROGRAM)
    assert (built(folder), built(folder)) == (1, 0)
    frozen(folder, WEIGHT)
    kept = {file: file.read_bytes() for file in engine_files(folder)}
    done = warm_compiler.run(script, folder, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("0\n", "")
    assert {file: file.read_bytes() for file in engine_files(folder)} == kept


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def headed(**changes: Any) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        kind, header, plan = data.split(b"\n", 2)
        return b"\n".join([kind, json.dumps({**json.loads(header), **changes}).encode(), plan])

    return change


def with_plan(plan: bytes) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        changes = headed(size=len(plan), sha256=hashlib.sha256(plan).hexdigest())(data)
        return b"\n".join([*changes.split(b"\n", 2)[:2], plan])

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: b"", "it is no engine of torchstone"),
        (lambda data: b"\x80\x04K\x01.", "it is no engine of torchstone"),
        (lambda data: data.replace(b"engine 1", b"engine 2", 1), "it has another format than 1: b'2'"),
        (lambda data: data[:40], "its header is damaged"),
        (lambda data: data.replace(b"{", b"[", 1), "its header is damaged"),
        (lambda data: b"torchstone engine 1\n[]\n", "its header is damaged"),
        (lambda data: b"torchstone engine 1\n" + b"[" * 5000, "its header is damaged"),
        (lambda data: data[:-10], r"it has \d+ bytes of a plan of \d+"),
        (lambda data: data + b"more", r"it has \d+ bytes of a plan of \d+"),
        (flipped, "its checksum does not fit"),
        (headed(tensorrt="10.3.0"), r"it is of TensorRT '10.3.0', and this is '11.4.0\+simulator'"),
        (headed(device="NVIDIA H200"), "it is of device 'NVIDIA H200', and this is 'simulator'"),
        (headed(platform=None), "it is of platform 'None', and this is '"),
        (headed(key="0" * 64), "it is of key '0000"),
        (headed(device="a\nb\x1b[31m\u202e"), r"it is of device 'a\\nb\\x1b\[31m\\u202e', and"),
        (headed(device="long" * 100), "it is of device '(long){25}', and"),
        (with_plan(b"no plan"), r"TensorRT simulator .* does not take it: .*: not a simulated plan of this version"),
    ],
)
def test_a_file_that_is_refused_is_replaced(tmp_path: Path, change: Callable[[bytes], bytes], why: str) -> None:
    assert built(tmp_path) == 1
    (file,) = engine_files(tmp_path)
    right = file.read_bytes()
    file.write_bytes(change(right))
    with pytest.warns(EngineCacheWarning, match=f"engine_cache: {file} is not used, and is built again: {why}") as told:
        assert built(tmp_path) == 1
    assert len(told) == 1 and "\n" not in str(told[0].message)
    assert engine_files(tmp_path) == [file] and file.read_bytes() == right
    assert built(tmp_path) == 0


def test_a_kept_engine_of_another_program_is_refused(tmp_path: Path) -> None:
    """A file that was renamed, with the checksum that it has to have."""
    frozen(tmp_path, WEIGHT)
    (other,) = engine_files(tmp_path)
    assert built(tmp_path) == 1
    (file,) = (f for f in engine_files(tmp_path) if f != other)
    other.replace(file)
    with pytest.warns(EngineCacheWarning, match=f"it is of key '{other.stem}', and this is '{file.stem}'"):
        assert built(tmp_path) == 1


def test_engines_that_grow_are_kept_for_each_range(tmp_path: Path) -> None:
    kind = TensorType(ROWS, dt.float32)
    for builds in (2, 0):
        program = lower_graph(legal(graph_of(lambda b, x: b.neg(x), [kind])), Settings(engine_cache=tmp_path))
        kernel = EngineKernel(program)
        for rows in (2, 3, 9):
            assert kernel([torch.ones(rows, 4)])[0].tolist() == [[-1.0] * 4] * rows
        assert kernel.builds == builds
    assert len(engine_files(tmp_path)) == 2


def test_a_folder_that_cannot_be_written_is_told_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trt.Builder, "build_serialized_network", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(
        TorchstoneError, match=r"^engine_cache: .*/file/sub cannot be written: Not a directory$"
    ) as told:
        built(tmp_path / "file" / "sub")
    assert told.value.stage == "compile"
    with pytest.raises(TorchstoneError, match=r"^engine_cache: .*/file is no folder$"):
        built(tmp_path / "file")
    with pytest.raises(TorchstoneError, match="engine_cache: the path of a folder is needed, got True"):
        compile(torch.exp, (torch.ones(2),), "tensorrt", engine_cache=True)


def test_a_folder_that_has_the_engine_may_be_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path)
    monkeypatch.setattr(Place, "check", None)
    monkeypatch.setattr(Place, "keep", None)
    assert built(tmp_path) == 0


def test_an_engine_that_cannot_be_kept_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after minutes of work."""

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(engine_cache, "replace_file", full)
    with pytest.warns(EngineCacheWarning, match=r"\.engine is not kept: No space left on device"):
        assert built(tmp_path) == 1


def test_a_file_that_cannot_be_read_is_built_again_and_told(tmp_path: Path) -> None:
    built(tmp_path)
    (file,) = engine_files(tmp_path)
    file.unlink()
    file.mkdir()
    with pytest.warns(EngineCacheWarning) as told:
        assert built(tmp_path) == 1
    first, second = (str(warning.message) for warning in told)
    assert first.endswith("it cannot be read: Is a directory") and second.endswith("is not kept: Is a directory")
    assert engine_files(tmp_path) == [file]


WRITER = """
import sys
from pathlib import Path
from torchstone.compiler.runtime.tensorrt.engine_cache import Place

place = Place(Path(sys.argv[1]), {}, "key")
print("ready", flush=True)
sys.stdin.readline()
for number in range(100):
    place.keep(sys.argv[2].encode() * (1 + number * 97 % 5000))
    plan = place.load(bytes)
    assert plan and len(set(plan)) == 1
"""


def test_several_processes_write_one_engine(tmp_path: Path) -> None:
    """Each reads a whole plan at any time, its own or the other's, and no warning says otherwise."""
    command = [sys.executable, "-W", "error", "-c", WRITER, str(tmp_path)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([*command, letter], **pipes) for letter in "ab"]
    assert [writer.stdout.readline() for writer in writers if writer.stdout] == ["ready\n"] * 2
    for writer in writers:
        assert writer.stdin
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.communicate() and writer.returncode for writer in writers] == [0, 0]
    assert engine_files(tmp_path) == [Place(tmp_path, {}, "key").file]


def test_a_profile_is_of_the_engine_that_was_kept(tmp_path: Path) -> None:
    """The ranges come from the file, and a call outside of them is told as after a build."""
    for builds in (1, 0):
        shapes, profiles = ({0: Dim("n")},), [{"n": (1, 2, 4)}, {"n": (5, 6, 8)}]
        exe = compile(torch.exp, (torch.ones(2),), "tensorrt", shapes, profiles=profiles, engine_cache=tmp_path)
        assert exe._kernel.builds == builds and exe._kernel._engine.num_optimization_profiles == 2
        assert exe(torch.zeros(7)).tolist() == [1.0] * 7
        assert exe._kernel._context.active_optimization_profile == 1
