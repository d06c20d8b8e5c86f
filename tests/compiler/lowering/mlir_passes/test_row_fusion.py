"""Loop nests fused over blocks of rows: what is fused, and that nothing is read before it is written."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import pytest
import torch
from torch import Tensor

from torchstone.compiler.driver import compile
from torchstone.compiler.lowering.mlir_passes import row_fusion, row_nests
from torchstone.compiler.runtime.cpu import cache, code, jit


@pytest.fixture(autouse=True)
def _as_if_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit, "SMALL_WORK", -1)
    torch.manual_seed(3)


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of loops over blocks of rows in each module compiled."""
    found: list[int] = []
    cache.CACHE.clear()

    def counted(module, options):
        row_fusion.fuse_rows(module, options.provider)
        assert module.operation.verify()
        top = [op.operation.name for op in module.body.operations[0].regions[0].blocks[0].operations]
        found.append(top.count("scf.for"))
        return module

    monkeypatch.setattr(code, "CPU", code.CPU.with_run("fuse-rows", counted))
    return found


FUSED: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log softmax": lambda x: torch.log_softmax(x, -1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "centered": lambda x: x - x.mean(-1, keepdim=True),
    "products of rows": lambda x: (x * x.sum(-1, keepdim=True)).amax(-1, keepdim=True) + x,
}
APART: dict[str, Callable[[Tensor], Tensor]] = {
    "columns": lambda x: x - x.sum(0, keepdim=True),
    "softmax of columns": lambda x: torch.softmax(x, 0),
    "rows in reverse": lambda x: x.exp().sum(-1, keepdim=True).flip(0) * x,
    "rows of a transposed": lambda x: torch.softmax(x, -1) @ torch.softmax(x, -1).t(),
    "one row of all": lambda x: x - x.sum(-1, keepdim=True)[:1],
    "all of it": lambda x: x / x.sum(),
    "the row before": lambda x: x[1:] - torch.cumsum(x, 1)[:-1],
    "joined": lambda x: torch.cat([x.exp().sum(-1, keepdim=True), x, x.sum(-1, keepdim=True).exp()], 1),
    "twice": lambda x: torch.softmax(torch.softmax(x, -1).sum(0, keepdim=True) * x, -1),
}


@pytest.mark.few(9)
@pytest.mark.parametrize("shape", [(16, 5), (7, 3), (1, 9), (24, 2500), (13, 9000), (4, 6, 10)], ids=str)
@pytest.mark.parametrize("name", FUSED)
def test_rows_that_need_themselves_only_are_fused(name: str, shape: tuple[int, ...], loops: list[int]) -> None:
    x = torch.randn(shape)
    out = compile(FUSED[name], (x,))(x)
    torch.testing.assert_close(out, FUSED[name](x.double()).float())
    assert len(loops) == 1 and loops[0] >= 1


@pytest.mark.few(11)
@pytest.mark.parametrize("shape", [(16, 16), (7, 3), (24, 250)], ids=str)
@pytest.mark.parametrize("name", APART)
def test_other_rows_are_waited_for(name: str, shape: tuple[int, ...]) -> None:
    x = torch.randn(shape)
    out = compile(APART[name], (x,))(x)
    # The exponential of a rounded sum of about 50 is 50 roundings off.
    torch.testing.assert_close(out, APART[name](x.double()).float(), rtol=1e-5, atol=1e-5)


def _turned(x: Tensor) -> Tensor:
    """Return the numbers of the rows, the last one first, computed from the values."""
    return torch.arange(x.shape[0]).flip(0) + (x.sum(-1) * 0).long()


# What a loop reads at places that are computed is no operand of it: of rows, and of where they are.
LOOKED_UP: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda rows, at: rows[at],
    "rows and more": lambda rows, at: rows[at].exp() + rows[at.flip(0)],
    "selected": lambda rows, at: torch.index_select(rows, 0, at),
    "elements": lambda rows, at: rows.reshape(-1)[at],
    "of sums": lambda rows, at: rows.sum(-1)[at],
    "of sums that are kept": lambda rows, at: rows.sum(-1, keepdim=True)[at],
    "along rows": lambda rows, at: torch.gather(rows, 0, at[:, None].expand(rows.shape).contiguous()),
    "embedded": lambda rows, at: torch.nn.functional.embedding(at, rows),
    "from a constant": lambda rows, at: torch.arange(5000.0)[at + rows.sum(-1).long()],
    "reversed": lambda rows, at: rows.flip(0),
    "summed up": lambda rows, at: rows.cumsum(0),
}


# The loops of every target are fused by the same pass: those of linalg meet it at every size.
LOOPS = (
    *(("linalg", shape) for shape in ((16, 16), (7, 3), (24, 250), (2000, 9))),
    ("tosa", (24, 250)),
    ("stablehlo", (7, 3)),
)


# Each is looked up in two of the loops, the next one in the next two.
@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("name", "target", "shape"),
    [
        pytest.param(name, *loops, marks=() if (at + place) % 3 == 0 else pytest.mark.torture)
        for at, name in enumerate(LOOKED_UP)
        for place, loops in enumerate(LOOPS)
    ],
)
def test_what_is_looked_up_is_waited_for(name: str, target: str, shape: tuple[int, ...]) -> None:
    def program(x: Tensor) -> tuple[Tensor, ...]:
        total = x.exp().sum(-1, keepdim=True)
        rows = x / total + 1
        found = LOOKED_UP[name](rows, _turned(rows))
        # Loops over rows that come after, and do not need what was found.
        later = (rows - total / (total + 1)).exp() / rows.sum(-1, keepdim=True)
        return found, later - later.amax(-1, keepdim=True), rows

    x = torch.randn(shape) / 4
    exe = compile(program, (x,), target)
    for _ in range(3):
        x = torch.randn(shape) / 4
        for got, want in zip(exe(x), program(x), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_strided_rows() -> None:
    x = torch.randn(40, 64)[::2, ::3].t()
    torch.testing.assert_close(compile(FUSED["softmax"], (x,))(x), torch.softmax(x, -1))


@pytest.mark.parametrize(
    ("shape", "dtype", "ahead"),
    [
        ((24, 250), torch.float32, True),
        ((7, 1001), torch.float32, True),
        ((5, 3, 333), torch.float64, True),
        ((9, 2049), torch.bfloat16, True),
        ((1, 1000), torch.float32, False),  # there is no next row
        ((13, 9000), torch.float32, False),  # two rows leave no room
        ((60, 4), torch.float32, False),  # all of it is one block
        ((8, 512), torch.complex64, False),
    ],
    ids=str,
)
def test_the_next_rows_are_fetched(shape: tuple[int, ...], dtype: torch.dtype, ahead: bool) -> None:
    x = torch.randn(shape, dtype=dtype)
    executable = compile(FUSED["centered"], (x,))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    most = 4 * torch.finfo(dtype).eps  # of numbers of ordinary size, whose sum has digits to spare
    torch.testing.assert_close(executable(x), FUSED["centered"](x.to(wide)).to(dtype), rtol=most, atol=most)
    assert ("llvm.intr.prefetch" in executable.ir["llvm"]) == ahead


def buffers(module) -> list[int]:
    """The elements of each buffer that a function allocates."""
    ops = [op.operation for op in module.body.operations[0].regions[0].blocks[0].operations]
    return [prod(op.results[0].type.shape) for op in ops if op.name in ("memref.alloc", "memref.alloca")]


@pytest.mark.few(7)
@pytest.mark.parametrize(
    "shape", [(1, 24, 700), (3, 1, 4, 600), (1, 1, 9, 1100), (2, 3, 6, 200), (2, 5, 1, 130)], ids=str
)
@pytest.mark.parametrize("name", FUSED)
def test_rows_of_a_batch_stay_in_the_cache(name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    cache.CACHE.clear()

    def measured(module, options):
        row_fusion.fuse_rows(module, options.provider)
        assert module.operation.verify()
        found.extend(buffers(module))
        return module

    monkeypatch.setattr(code, "CPU", code.CPU.with_run("fuse-rows", measured))
    x = torch.randn(shape)
    x[..., 0, 3], x[..., -1, 5], x[0, ..., 1] = float("nan"), float("inf"), -float("inf")
    out = compile(FUSED[name], (x,))(x)
    torch.testing.assert_close(out, FUSED[name](x.double()).float(), equal_nan=True)
    assert max(found, default=0) <= max(row_nests.BLOCK, shape[-1])


BATCHES: dict[str, Callable[[Tensor], Tensor]] = {
    "rows of each head": lambda x: torch.softmax(x, -1) - x.mean(-1, keepdim=True),
    "a sum of each head": lambda x: torch.softmax(x, -1) * x.exp().sum((2, 3), keepdim=True),
    "across heads": lambda x: torch.softmax(x, 1) + x.sum(-1, keepdim=True),
    "another head": lambda x: torch.softmax(x, -1).flip(1) * x.exp().amax(-1, keepdim=True),
    "another batch": lambda x: torch.softmax(x, -1).roll(1, 0) * x.exp().amax(-1, keepdim=True),
    "the first of a batch": lambda x: x.exp().sum(-1, keepdim=True)[:1] * torch.softmax(x, -1),
    "one row of each head": lambda x: x.exp().sum(-1, keepdim=True)[:, :, :1] * torch.softmax(x, -1),
    "heads side by side": lambda x: torch.softmax(x, -1).transpose(1, 2).flatten(2) - x.sum(-1).amax(1)[..., None],
    "products": lambda x: torch.softmax(x @ x.transpose(-1, -2), -1) @ x,
}


@pytest.mark.few(9)
@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 6, 7, 9), (3, 1, 5, 4), (2, 3, 1, 1), (0, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("name", BATCHES)
def test_other_rows_of_a_batch_are_waited_for(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_nests, "BLOCK", 1)
    cache.CACHE.clear()
    x = torch.randn(shape)
    out = compile(BATCHES[name], (x,))(x)
    torch.testing.assert_close(out, BATCHES[name](x.double()).float())


@pytest.mark.parametrize("target", ["linalg", "tosa", "stablehlo"])
def test_what_two_loops_compute_again_is_no_loop_of_its_own(target: str) -> None:
    """Fusion puts a number that two loops read into both; what computed it, by a call, is left and gives nothing."""
    x = torch.randn(70001)
    exe = compile(torch.special.log_ndtr, (x,), target) if target != "tosa" else compile(torch.erfc, (x,), target)
    fn = torch.special.log_ndtr if target != "tosa" else torch.erfc
    torch.testing.assert_close(exe(x), fn(x))
