"""Programs compiled once with every size free and run at others; sizes that do not fit raise before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.nn import functional as F

import torchstone
from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ir import parse_graph
from torchstone.compiler.ir.dims import nonnegative, parse_dim
from torchstone.compiler.transforms.bounds import hoist, require_bounds

Shape = tuple[int, ...]
Program = Callable[..., Any]


def compile_free(fn: Program, args: tuple[torch.Tensor, ...], target: str = "linalg") -> Any:
    shapes = tuple(dict.fromkeys(range(a.dim()), Dim.AUTO) for a in args)
    return torchstone.compile(fn, args, target, dynamic_shapes=shapes)


def gradient_of(fn: Program, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(fn(leaf), leaf, grad)[0]


# The program, the shapes it is compiled at, and others.
PROGRAMS: dict[str, tuple[Program, list[Shape], list[list[Shape]]]] = {
    "adaptive average": (
        lambda x: F.adaptive_avg_pool2d(x, (3, 2)), [(2, 3, 6, 7)], [[(3, 2, 2, 2)], [(2, 4, 9, 5)]],
    ),
    "adaptive maximum": (
        lambda x: F.adaptive_max_pool2d(x, (3, 2), return_indices=True), [(2, 3, 6, 7)], [[(2, 4, 9, 5)]],
    ),
    "gradient of the adaptive average": (
        lambda grad, x: torch.ops.aten._adaptive_avg_pool2d_backward(grad, x), [(2, 3, 4, 5), (2, 3, 6, 7)],
        [[(2, 3, 4, 5), (2, 3, 9, 5)]],
    ),
    "convolution": (
        lambda x, w: F.conv2d(x, w, padding=1, stride=2, dilation=2), [(2, 3, 9, 8), (4, 3, 3, 2)],
        [[(3, 2, 12, 9), (5, 2, 2, 4)]],
    ),
    "transposed convolution": (
        lambda x, w: F.conv_transpose2d(x, w, padding=1, stride=2), [(2, 3, 4, 5), (3, 4, 3, 2)],
        [[(3, 2, 5, 3), (2, 5, 2, 4)]],
    ),
    "counts with weights": (
        lambda x, w: torch.bincount(x.flatten().abs().long(), w), [(3, 4), (12,)], [[(2, 3), (6,)], [(5, 5), (25,)]],
    ),
    "diagonal": (lambda x: x.diagonal(-1, 1, 2) * 2, [(3, 5, 4)], [[(2, 3, 6)], [(2, 6, 3)]]),
    "writing a diagonal": (
        lambda x, d: torch.diagonal_scatter(x, d, 1, 1, 2), [(3, 5, 4), (3, 3)],
        [[(2, 3, 6), (2, 3)], [(4, 6, 3), (4, 2)]],
    ),
    "trace": (torch.trace, [(5, 4)], [[(3, 6)]]),
    "linear interpolation": (
        lambda x: F.interpolate(x, (5, 7), mode="bilinear"), [(2, 3, 6, 7)], [[(2, 2, 4, 9)], [(2, 2, 5, 7)]],
    ),
    "sampling an image": (
        lambda x, grid: F.grid_sample(x, grid, "bilinear", "reflection", False), [(2, 3, 5, 6), (2, 4, 5, 2)],
        [[(3, 2, 4, 7), (3, 3, 2, 2)]],
    ),
    "sampling a volume": (
        lambda x, grid: F.grid_sample(x, grid, "bilinear", "border", True), [(2, 3, 5, 6, 4), (2, 4, 5, 2, 3)],
        [[(3, 2, 4, 7, 3), (3, 3, 2, 2, 3)]],
    ),
    "a gradient within": (
        lambda x, grad: gradient_of(lambda x: x.softmax(-1).std(1), x, grad), [(3, 4), (3,)], [[(2, 5), (2,)]],
    ),
    "halves": (lambda x: F.glu(x, 0), [(6, 7)], [[(8, 3)]]),
    "groups": (lambda x: F.channel_shuffle(x, 2), [(2, 4, 6, 7)], [[(3, 6, 5, 5)]]),
    "written row": (lambda x, y: x.select_scatter(y, 0, 1), [(5, 4), (4,)], [[(6, 3), (3,)]]),
    "sizes that become constants": (lambda x: F.local_response_norm(x, 3), [(2, 3, 6, 7)], []),
    "sizes that PyTorch's C++ reads": (torch.kron, [(3, 4), (2, 5)], []),
    "transform of two dims": (
        lambda x: torch.view_as_real(torch.fft.fft2(x, norm="ortho")), [(5, 6)], [[(4, 9)], [(7, 8)], [(2, 3)]],
    ),
    "transform there and back": (
        lambda x: torch.fft.irfft(torch.fft.rfft(x, norm="forward"), x.shape[-1], norm="forward"), [(2, 6)],
        [[(3, 7)], [(2, 8)], [(3, 40)]],
    ),
    "transform to an odd length": (
        lambda x: torch.fft.irfft(x, 2 * x.shape[-1] - 1), [(2, 4)], [[(3, 5)], [(2, 8)]],
    ),
    "transform of a cut signal": (lambda x: torch.fft.fft(x, 4, 1).abs(), [(2, 6, 3)], [[(3, 6, 5)]]),
}  # fmt: skip


def test_sizes_that_became_constants_are_guarded() -> None:
    program = compile_free(torch.kron, (torch.ones(3, 4), torch.ones(2, 5)), "evaluator")
    with pytest.raises(GuardError, match=r"compiled as f32\[3, 4\]"):
        program(torch.ones(4, 4), torch.ones(2, 5))


@pytest.mark.few(4)
@pytest.mark.parametrize(("name", "target"), covering([*PROGRAMS], ["evaluator", "linalg"], strength=1))
def test_any_size(name: str, target: str) -> None:
    fn, shapes, others = PROGRAMS[name]
    executable = compile_free(fn, tuple(map(torch.randn, shapes)), target)
    for sizes in (shapes, *others):
        args = tuple(map(torch.randn, sizes))
        torch.testing.assert_close(executable(*args), fn(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["evaluator", "linalg"])
def test_a_slice_outside_raises_in_python(target: str) -> None:
    def cropped(x: torch.Tensor) -> torch.Tensor:
        return F.pad(x, (-2, -2), mode="replicate") * 2

    executable = compile_free(cropped, (torch.randn(4, 3, 9),), target)
    x = torch.randn(5, 2, 8)
    torch.testing.assert_close(executable(x), cropped(x))
    with pytest.raises(GuardError) as error:
        executable(torch.randn(5, 2, 3))
    assert "s2=3" in str(error.value) or "size s2" in str(error.value)


def test_a_slice_of_what_is_empty_has_a_size_of_run_time() -> None:
    """MLIR refuses a slice whose begin is no place of its operand."""
    executable = compile_free(torch.diagonal_scatter, (torch.ones(4, 0), torch.ones(0)))
    for rows in (4, 2):
        assert executable(torch.ones(rows, 0), torch.ones(0)).shape == (rows, 0)


def test_sizes_that_have_to_be_equal_name_op_and_line() -> None:
    def put(x: torch.Tensor, index: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return x.index_put((index,), values)

    rows = torch.tensor([0, 2])
    executable = compile_free(put, (torch.randn(5, 4), rows, torch.randn(2, 4)))
    args = torch.randn(6, 3), torch.tensor([1, 2, 0]), torch.randn(3, 3)
    torch.testing.assert_close(executable(*args), put(*args))
    with pytest.raises(GuardError, match=r"s2=3, s3=2: (?s:.*)test_any_size.py(?s:.*)aten.index_put.default"):
        executable(args[0], args[1], torch.randn(2, 3))


def test_bounds_are_required_where_they_can_be_broken() -> None:
    text = (
        "graph @main(%x: f32[s0, 6]) {{\n  %a: f32[{size}] = flat.slice(%x) "
        "{{start=[<{start}>, 0], limit=[<{limit}>, 6], stride=[1, 1]}}\n  return %a\n}}\n"
    )
    for start, limit, size, ranges in (
        ("0", "s0", "s0, 6", []), ("0", "s0-2", "s0-2, 6", [(5, True), (1, False)]),
        ("0", "s0+2", "s0+2, 6", [(5, False)]), ("min(1, s0)", "s0", "-min(1, s0)+s0, 6", [(5, True), (0, True)]),
    ):  # fmt: skip
        flat, guards = hoist(
            require_bounds(parse_graph(text.format(start=start, limit=limit, size=size).replace("<0>", "0")))
        )
        assert [op.name for op in flat.ops] == ["flat.slice"]
        assert bool(guards) == bool(ranges)
        for rows, fits in ranges:
            assert all(guard({"s0": rows}) is None for guard in guards) is fits


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("s0", True), ("s0-1", False), ("s0*s1+2", True), ("floordiv(s0, 2)", True), ("floordiv(s0-1, 2)", False),
        ("mod(s0-9, 3)", True), ("max(s0-9, 0)", True), ("min(s0-9, 4)", False), ("min(s0, 4)", True),
    ],
)  # fmt: skip
def test_nonnegative(text: str, known: bool) -> None:
    assert nonnegative(parse_dim(text)) is known


def test_more_arguments_than_ctypes_can_pass() -> None:
    # A tensor of run-time layout is 3 + 2 * rank arguments of the kernel.
    ones = (1,) * 14
    many = [torch.randn(1, *ones, 2) for _ in range(30)]

    def total(x: torch.Tensor, rest: list[torch.Tensor]) -> torch.Tensor:
        return x + torch.cat(rest).sum(0)

    shapes = ({0: torch.export.Dim.AUTO}, [None] * len(many))
    executable = torchstone.compile(total, (torch.randn(3, *ones, 2), many), "linalg", dynamic_shapes=shapes)
    for size in (3, 5):
        x = torch.randn(size, *ones, 2)
        torch.testing.assert_close(executable(x, many), total(x, many))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_statistics_keep_their_dtype(dtype: torch.dtype) -> None:
    ours, theirs = (torch.nn.BatchNorm1d(3).to(dtype) for _ in range(2))
    executable = compile_free(ours, (torch.randn(4, 3, 5, dtype=dtype),))
    x = torch.randn(6, 3, 7, dtype=dtype)
    torch.testing.assert_close(executable(x), theirs(x), rtol=0.02, atol=0.01)  # a rounding or two of bfloat16
    for name in ("running_mean", "running_var"):
        assert getattr(ours, name).dtype == dtype
        torch.testing.assert_close(getattr(ours, name), getattr(theirs, name), rtol=0.02, atol=0.01)


@pytest.mark.parametrize("target", ["evaluator", "linalg", "stablehlo", "tensorrt"])
def test_a_size_that_no_argument_has_alone_is_told_by_what_is_made_of_it(target: str) -> None:
    rows = Dim("rows", min=1, max=20)

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * 2 + x.sum(0)

    compiled = torchstone.compile(program, (torch.ones(6, 3),), target=target, dynamic_shapes=({0: 2 * rows},))
    for size in (4, 8, 40):
        x = torch.randn(size, 3)
        torch.testing.assert_close(compiled(x), program(x))
    for size in (7, 42):
        with pytest.raises(GuardError):
            compiled(torch.ones(size, 3))


@pytest.mark.parametrize("target", ["evaluator", "linalg", "stablehlo"])
def test_half_of_an_even_size(target: str) -> None:
    rows = Dim("rows", min=1, max=20)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x[: x.shape[0] // 2]])

    compiled = torchstone.compile(program, (torch.ones(6, 3),), target=target, dynamic_shapes=({0: 2 * rows},))
    for size in (4, 8, 40):
        x = torch.randn(size, 3)
        assert torch.equal(compiled(x), program(x))


@pytest.mark.few(3)
@pytest.mark.parametrize("start", [None, -9, -1, 0, 2, 7])
@pytest.mark.parametrize("end", [None, -9, -1, 0, 1, 3, 9])
def test_a_slice_of_any_size_is_written_to_as_python_counts(start: int | None, end: int | None) -> None:
    """``x[-1:0]`` is empty, and so are slices that begin behind the end."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[start:end] = 7.0
        return y

    compiled = compile_free(program, (torch.randn(5, 2),))
    for size in (5, 8):
        x = torch.randn(size, 2)
        try:
            got = compiled(x)
        except GuardError:  # PyTorch took a bound of the slice for one that this size keeps
            continue
        assert torch.equal(got, program(x))


@pytest.mark.parametrize("target", ["linalg", "stablehlo"])
def test_what_is_put_in_the_place_of_a_slice_has_its_sizes(target: str) -> None:
    def program(x: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, part, 0, 0, 20)

    compiled = compile_free(program, (torch.rand(20, 3, 4), torch.rand(20, 3, 4)), target)
    for shape in ((20, 3, 4), (25, 2, 5)):
        x, part = torch.rand(shape), torch.rand(20, *shape[1:])
        torch.testing.assert_close(compiled(x, part), program(x, part), rtol=0, atol=0)
    for shape in ((20, 5, 2), (19, 2, 5), (1, 2, 5)):
        with pytest.raises(GuardError):
            compiled(torch.rand(25, 2, 5), torch.rand(shape))
