"""Inductor's adapter: what it forgets, what it keeps between runs, and what it says of a refusal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone.compiler._torch import dynamo
from torchstone.conformance.backends.adapters import inductor_warm_files
from torchstone.conformance.backends.adapters.inductor import Inductor
from torchstone.conformance.backends.dynamo_errors import told_apart
from torchstone.conformance.backends.protocol import BackendError, BackendUnsupported
from torchstone.conformance.program.member_names import members_named
from torchstone.conformance.program.program import Call, Program, Ref


def test_programs_in_use_are_not_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    resets: list[None] = []
    monkeypatch.setattr(dynamo, "reset", lambda: resets.append(None), raising=False)
    monkeypatch.setattr(torch, "compile", lambda module, **options: module)
    backend, args = Inductor(), (torch.ones(2),)

    def double(x: torch.Tensor) -> Any:
        return x + x

    first = backend.compile(double, args)
    assert len(resets) == 1
    second = backend.compile(double, args)
    assert len(resets) == 1
    assert first(*args).tolist() == second(*args).tolist() == [2, 2]
    del first, second
    backend.compile(double, args)
    assert len(resets) == 2


def test_every_size_is_free_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(dynamo, "reset", lambda: None, raising=False)
    monkeypatch.setattr(torch, "compile", lambda module, **options: asked.append(options["dynamic"]) or module)
    backend, args = Inductor(), (torch.ones(2),)
    backend.compile(torch.neg, args)
    backend.compile_dynamic(torch.neg, args, ((0,),))
    assert asked == [False, True]


@pytest.mark.parametrize("gradients", [1, 2])
def test_the_settings_hold_at_every_call(monkeypatch: pytest.MonkeyPatch, gradients: int) -> None:
    """At other sizes torch.compile compiles again: with its caches, a graph of another program could answer. A graph
    that is gone back through twice keeps its buffers."""
    seen: list[tuple[bool, bool]] = []

    def compiled(module: Any, **options: Any) -> Any:
        def run(*args: Any) -> Any:
            seen.append((dynamo.inductor_config.fx_graph_cache, dynamo.functorch_config.donated_buffer))
            return module(*args)

        return run

    monkeypatch.setattr(dynamo, "reset", lambda: None, raising=False)
    monkeypatch.setattr(torch, "compile", compiled)
    leaf = [
        Call("torch.Tensor.detach", (Ref("x"),), {}, "d"),
        Call("torch.Tensor.requires_grad_", (Ref("d"),), {}, "l"),
    ]
    steps = [Call("torch.exp", (Ref("l"),), {}, "e"), Call("torch.sum", (Ref("e"),), {}, "s")]
    taken = [Call("torch.autograd.grad", (Ref("s"), [Ref("l")]), {}, f"g{k}") for k in range(gradients)]
    program = Program(("x",), (*leaf, *steps, *taken), tuple(Ref(f"g{k}") for k in range(gradients)))
    executable = Inductor().compile(program, (torch.ones(2),))
    executable(torch.ones(2))
    executable(torch.ones(3))
    assert seen == [(False, gradients == 1)] * 3


def test_what_a_compiled_program_raises_is_not_hidden_by_what_looks_for_its_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A graph module looks for the line in Python, which torch.compile finds in its way, and declines."""

    def compiled(function: Any, **options: Any) -> Any:
        assert not isinstance(function, torch.nn.Module)
        return function

    monkeypatch.setattr(dynamo, "reset", lambda: None, raising=False)
    monkeypatch.setattr(torch, "compile", compiled)
    program = Program(("x",), (Call("torch.squeeze", (Ref("x"), 7), {}, "v"),), Ref("v"))
    with pytest.raises(BackendError, match="Dimension out of range"):
        Inductor().compile(program, (torch.ones(2),))


def test_what_torchdynamo_declines_is_told_with_the_line_of_the_program() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * id(x.sin())

    with pytest.raises(BackendUnsupported, match=r"\n  At: return x \* id\(x\.sin\(\)\)\n"), told_apart():
        torch.compile(function, fullgraph=True, backend="eager")(torch.ones(2))


def _worker(monkeypatch: pytest.MonkeyPatch, folder: Path) -> list[Path]:
    """Make what a first kernel makes, in folders of a worker's own, unless it is there; return what was."""
    headers, cache = folder / "headers", folder / "cache"
    monkeypatch.setattr(dynamo, "header_folder", str(headers), raising=False)
    monkeypatch.setattr(dynamo, "inductor_cache_dir", lambda: cache, raising=False)
    monkeypatch.setattr(dynamo, "is_gcc", lambda: True, raising=False)
    with inductor_warm_files.kept():
        found = [file for file in folder.rglob("*") if not file.is_dir()]
        for file in (headers / "h.h.gch", cache / "ab" / "probe.so", cache / "ab" / "kernel.main.so"):
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(file.name)
    return found


def test_what_the_first_kernel_leaves_is_kept_and_taken_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """But for kernels. What was not taken for a month is removed."""
    home = tmp_path / "home"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    assert _worker(monkeypatch, tmp_path / "first") == []
    kept = {str(file.relative_to(home)) for file in home.rglob("*") if file.is_file()}
    assert kept == {"torchstone/inductor/headers/h.h.gch", "torchstone/inductor/libraries/ab/probe.so"}
    taken = _worker(monkeypatch, tmp_path / "second")
    assert {file.name for file in taken} == {"h.h.gch", "probe.so"}
    assert all(file.is_symlink() and file.read_text() == file.name for file in taken)
    (old,) = home.rglob("*.so")
    old.rename(old.with_name("old.so"))
    os.utime(old.with_name("old.so"), (0, 0))
    monkeypatch.setattr(os, "utime", lambda file: None)  # as if no run had taken it since
    _worker(monkeypatch, tmp_path / "third")
    assert [file.name for file in home.rglob("*.so")] == ["probe.so"]


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert _worker(monkeypatch, tmp_path / "first") == _worker(monkeypatch, tmp_path / "second") == []


def test_a_long_error_still_names_the_call() -> None:
    """Of programs that are compiled as one, it says which of them to set aside."""
    told = [*(f"detail {line}" for line in range(20)), "While executing %p3_v0 : take(%p3_x0)", "Original traceback:"]
    error = dynamo.BackendCompilerFailed(lambda: None, RuntimeError("\n".join(told)), None)
    with pytest.raises(BackendError) as raised, told_apart():
        raise error
    assert members_named(str(raised.value)) == {3} and "detail 19" not in str(raised.value)


@pytest.mark.filterwarnings("ignore")  # PyTorch's own, as Inductor is imported
def test_an_error_of_a_lowering_names_the_call_of_the_program() -> None:
    """Two programs as one, of which Inductor cannot lower the second: it says so below all of the operands."""

    rows, scale = Ref("p1_x0"), Ref("p1_x1")
    product = Call("torch._scaled_mm", (rows, rows, scale, scale), {"out_dtype": torch.float32}, "p1_v0")
    calls = (Call("torch.neg", (Ref("p0_x0"),), {}, "p0_v0"), product)
    program = Program(("p0_x0", "p1_x0", "p1_x1"), calls, [Ref("p0_v0"), Ref("p1_v0")])
    args = torch.ones(3), torch.ones(16, 16).to(torch.float8_e4m3fn), torch.tensor(1.0)
    with pytest.raises(BackendError, match=r"\n  At: p1_v0 = torch\._scaled_mm") as raised:
        Inductor().compile(program, args)
    assert members_named(str(raised.value)) == {1}
