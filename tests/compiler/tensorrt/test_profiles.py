"""Optimization profiles: the ranges an engine is built for, which one a call runs with, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from torchstone import Dim, compile
from torchstone.compiler.diagnostics import GuardError, TorchstoneError
from torchstone.compiler.driver import Executable
from torchstone.compiler.ir import TensorType, symbol
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.graph import Frame, Location
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.lowering.tensorrt import lower
from torchstone.compiler.runtime.tensorrt import simulator as trt

from .graphs import graph_of, kernel


def pair(x: Any, y: Any) -> Any:
    return (x.reshape(-1) + y).reshape(x.shape[0], 2) * 2


def sums(x: Any, y: Any) -> Any:
    return x.sum(0) + y.sum(0)


def compiled(n: Any, m: Any, **options: Any) -> Executable:
    """``sums`` of [n, 2] and [m, 2], 3 and 4 in the example."""
    return compile(sums, (torch.ones(3, 2), torch.ones(4, 2)), "tensorrt", ({0: n}, {0: m}), **options)


def engine(exe: Executable) -> Any:
    return exe._kernel


def ranges(exe: Executable, index: int = 0) -> list[list[list[int]]]:
    """The min, opt and max shape of each input in the engine that was built."""
    inputs = [i.name for i in engine(exe).program.network_inputs]
    return [[list(s) for s in engine(exe)._engine.get_tensor_profile_shape(name, index)] for name in inputs]


def by_names(n: Any) -> Any:
    return {"y": {0: 2 * n}, "x": {0: n}}


def by_position(n: Any) -> Any:
    return ({0: n}, (2 * n,))


@pytest.mark.parametrize("shapes", [by_names, by_position])
@pytest.mark.parametrize(
    ("n", "best"), [(Dim("n", min=1, opt=8, max=64), 8), (torch.export.Dim("n", min=1, max=64), 3)]
)
def test_one_engine_has_the_range_of_its_dims(shapes: Callable[[Any], Any], n: Any, best: int) -> None:
    """Sizes made of one Dim agree; without ``opt``, the example's is the optimum."""
    exe = compile(pair, (torch.randn(3, 2), torch.randn(6)), "tensorrt", shapes(n))
    assert ranges(exe) == [[[1, 2], [best, 2], [64, 2]], [[2], [2 * best], [128]]]
    for size in (1, 8, 64):
        x, y = torch.randn(size, 2), torch.randn(2 * size)
        torch.testing.assert_close(exe(x, y), pair(x, y))
    assert engine(exe).builds == 1
    line = f"// profile 0: %input0 [1, 2] [{best}, 2] [64, 2], %input1 [2] [{2 * best}] [128]"
    assert exe.ir["tensorrt"].splitlines()[1] == line
    with pytest.raises(GuardError, match=r"size n, dim 0 of %x0, must be in \[1, 64\], is 65"):
        exe(torch.randn(65, 2), torch.randn(130))
    with pytest.raises(GuardError, match=r"size 0 of %x1 must be 2\*n = 10, is 12"):
        exe(torch.randn(5, 2), torch.randn(12))


def test_a_dim_that_is_no_size_itself_is_told_by_what_is_made_of_it() -> None:
    n = Dim("n", min=2, opt=8, max=64)
    exe = compile(lambda x, y: x.sum() + y.sum(), (torch.ones(6), torch.ones(4)), "tensorrt", ({0: 2 * n}, {0: n + 1}))
    assert ranges(exe) == [[[4], [16], [128]], [[3], [9], [65]]]
    with pytest.raises(GuardError, match=r"size 0 of %x1 must be n\+1 = 6, is 7"):
        exe(torch.ones(10), torch.ones(7))
    with pytest.raises(GuardError, match=r"size n, dim 0 of %x0 as 2\*n, must be in \[2, 64\], is 65"):
        exe(torch.ones(130), torch.ones(66))


def test_a_size_without_a_maximum_grows_beside_one_that_has_one() -> None:
    exe = compiled(Dim("n", min=1, opt=8, max=64), Dim("m"))
    assert engine(exe).builds == 0
    for m, builds, high in ((5, 1, 10), (10, 1, 10), (11, 2, 22), (5, 2, 22)):
        exe(torch.ones(64, 2), torch.ones(m, 2))
        assert engine(exe).builds == builds
        assert ranges(exe)[0] == [[1, 2], [8, 2], [64, 2]]
        assert ranges(exe)[1][::2] == [[5, 2], [high, 2]]


SEVERAL = [{"n": (1, 1, 1), "m": (1, 2, 9)}, {"n": (2, 8, 64), "m": (1, 4, 16)}, {"n": (2, 32, 64), "m": (2, 2, 4)}]


def test_a_call_runs_with_the_profile_that_has_its_sizes() -> None:
    """The nearest optimum decides between several."""
    exe = compiled(Dim("n"), Dim("m"), profiles=SEVERAL)
    assert [ranges(exe, i)[0][1] for i in range(3)] == [[1, 2], [8, 2], [32, 2]]
    for n, m, profile in ((1, 3, 0), (2, 2, 1), (40, 3, 2), (64, 16, 1), (1, 9, 0), (9, 4, 1)):
        x, y = torch.randn(n, 2), torch.randn(m, 2)
        torch.testing.assert_close(exe(x, y), sums(x, y))
        assert engine(exe)._context.active_optimization_profile == profile
    assert engine(exe).builds == 1


@pytest.mark.parametrize(
    ("n", "m", "message"),
    [
        (65, 4, r"dim 0 of %x0, n, is 65, and the profiles take 1 to 1 or 2 to 64$"),
        (4, 17, r"dim 0 of %x1, m, is 17, and the profiles take 1 to 9 or 1 to 16 or 2 to 4$"),
        (1, 12, r"dim 0 of %x0, n, is 1, and .* 64; dim 0 of %x1, m, is 12, and .* 4: no profile takes all of them"),
    ],
)
def test_sizes_outside_of_every_profile(n: int, m: int, message: str) -> None:
    exe = compiled(Dim("n"), Dim("m"), profiles=SEVERAL)
    with pytest.raises(GuardError, match=message):
        exe(torch.ones(n, 2), torch.ones(m, 2))


M = (1, 4, 9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"profiles": [{"n": (1, 2, 3)}]},
            r'profile 0 says nothing of m, which has no max: add "m": \(min, opt, max\)',
        ),
        ({"profiles": [{"n": (1, 2, 3), "m": M}, {"k": M}]}, r'profile 1: no dynamic size "k"; there is n, m'),
        ({"profiles": [{"n": (1, 5, 3), "m": M}]}, "n needs 0 <= min <= opt <= max, got min 1, opt 5 and max 3"),
        ({"profiles": [{"n": (1, 5), "m": M}]}, r"n needs three ints, \(min, opt, max\), got \(1, 5\)"),
        ({"profiles": [{"n": (1, 5, 65), "m": M}]}, "profile 0: n is 1 to 65, and its Dim takes 1 to 64 only"),
        ({"profiles": {"n": M}}, "profiles: a list of dicts is needed"),
        ({"profiles": []}, "profiles: a list of dicts is needed"),
        (
            {"profiles": [{"n": (1, 1, 2), "m": M}, {"n": (5, 5, 5), "m": M}]},
            "no profile has the sizes of the example, n = 3, m = 4: profile 0 takes n 1 to 2, m 1 to 9; profile 1",
        ),
        ({"workspace": 0}, "workspace: a positive number of bytes is needed, got 0"),
        ({"timing_cache": "no/such/file"}, "timing_cache: there is no folder no/such"),
        (
            {"workspce": 1},
            r'target tensorrt: no option "workspce" \(did you mean "workspace"\?\); its own are profiles',
        ),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TorchstoneError, match=message):
        compiled(Dim("n", min=1, max=64), Dim("m"), **options)


def test_profiles_need_dynamic_sizes_and_a_target_that_has_them() -> None:
    with pytest.raises(
        TorchstoneError, match='no dynamic size "n"; there is none: dynamic_shapes or mark_dynamic says'
    ):
        compile(torch.exp, (torch.ones(2),), "tensorrt", profiles=[{"n": M}])
    with pytest.raises(TorchstoneError, match=r'target evaluator: no option "profiles"; it has none of its own'):
        compile(torch.exp, (torch.ones(2),), "evaluator", profiles=[{"n": M}])
    with pytest.raises(TorchstoneError, match=r'no option "freze" \(did you mean "freeze"\?\)'):
        compile(torch.exp, (torch.ones(2),), "tensorrt", freze=True)


def test_a_target_made_of_this_one_keeps_what_it_changed() -> None:
    target = replace(
        find_target("tensorrt"), lower=lambda graph, settings: lower(graph, replace(settings, profiles=()))
    )
    exe = compile(lambda x: x + 1, (torch.ones(3),), target, ({0: Dim("n", max=9)},))
    assert engine(exe).builds == 0


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_other_targets_have_no_optimum(target: str) -> None:
    exe = compile(lambda x: x + 1, (torch.ones(3),), target, ({0: Dim("n", min=1, opt=8, max=64)},))
    assert exe(torch.ones(64)).shape == (64,)


def test_frozen_parameters_and_profiles() -> None:
    linear = torch.nn.Linear(2, 3)
    n = Dim("n", min=1, opt=8, max=64)
    exe = compile(linear, (torch.ones(3, 2),), "tensorrt", ({0: n},), freeze=True, profiles=[{"n": M}])
    assert exe.ir["tensorrt"].splitlines()[1] == "// profile 0: %input0 [1, 2] [4, 2] [9, 2]"
    x = torch.randn(9, 2)
    torch.testing.assert_close(exe(x), linear(x))


def test_what_the_builder_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, int]] = []
    monkeypatch.setattr(trt.IBuilderConfig, "set_memory_pool_limit", lambda self, *limit: told.append(limit))
    compile(torch.exp, (torch.ones(2),), "tensorrt", workspace=1 << 20)
    assert told == [(trt.MemoryPoolType.WORKSPACE, 1 << 20)]
    compile(torch.exp, (torch.ones(2),), "tensorrt")
    assert len(told) == 1


def test_a_timing_cache_is_kept_in_a_file_and_a_foreign_one_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[bytes] = []
    create = trt.IBuilderConfig.create_timing_cache
    monkeypatch.setattr(
        trt.IBuilderConfig, "create_timing_cache", lambda self, data: (given.append(bytes(data)), create(self, data))[1]
    )
    file = tmp_path / "model.cache"

    def build() -> bytes:
        given.clear()
        compile(torch.exp, (torch.ones(2),), "tensorrt", timing_cache=file)
        return file.read_bytes()

    made = build()
    assert made and given == [b""]
    assert build() == made and given == [made]
    file.write_bytes(made[:-1])
    assert build() == made and given == [made[:-1], b""]
    assert list(tmp_path.iterdir()) == [file]
    file.unlink()
    file.mkdir()
    with pytest.raises(TorchstoneError, match=r"timing_cache: .*model.cache cannot be read: Is a directory"):
        build()


def cut(location: Location) -> Any:
    """A network that needs n to be at least 4."""

    def build(b: Any, x: Any) -> Any:
        b.location = location
        return b.slice(b.neg(x), 0, 0, 4)

    return graph_of(build, [TensorType((symbol("n"),), dt.float32)])


def test_an_error_of_the_builder_names_the_line_of_the_layer() -> None:
    """For a profile too; and the engine that was there stays."""
    run = kernel(cut(Location((Frame("model.py", 7, "forward"),))))
    assert run([torch.ones(5)])[0].shape == (4,)
    with pytest.raises(
        TorchstoneError, match=r"kOPT values for profile 0 violate shape .*flat.slice.*bounds"
    ) as caught:
        run([torch.ones(3)])
    assert (caught.value.stage, caught.value.op) == ("compile", "flat.slice")
    assert "at model.py:7 in forward" in caught.value.where
    assert run([torch.ones(6)])[0].shape == (4,)
    assert run.builds == 1
