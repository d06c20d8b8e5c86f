"""Convolution, pooling, folding, upsampling and their gradients against eager: dtypes, ranks, windows of every kind."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.compiler.transforms.conftest import assert_same
from tests.sampling import covering, one_in
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _values(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (made if dtype.is_floating_point else made * 4).to(dtype)


def _special(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Few values, so that many are equal, and every NaN and infinity."""
    x = _values(*shape).mul(2).round().to(dtype)
    kind = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    x[kind < 0.1], x[kind > 0.8] = float("nan"), float("-inf")
    return x


def test_folded_booleans_say_whether_any_is_true(agrees: Agrees) -> None:
    x = _values(2, 12, 6) > 1
    agrees(lambda x: F.fold(x, (3, 4), (2, 2)), x)
    agrees(lambda x: F.fold(x, (3, 4), (2, 2)), torch.ones(1, 4, 6, dtype=torch.bool))


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution(agrees: Agrees, space: int, transposed: bool) -> None:
    for stride, padding, dilation, groups in itertools.product((1, 3), (0, 2), (1, 2), (1, 2)):
        x = _values(2, 4, *(7, 6, 5)[:space])
        w = _values(4, 6 // groups if transposed else 4 // groups, *(3, 2, 2)[:space], seed=1)
        output_padding = [min(stride - 1, 1) * transposed] * space
        args = ([stride] * space, [padding] * space, [dilation] * space, transposed, output_padding, groups)
        bias = _values(6 if transposed else 4, seed=2)
        agrees(lambda x, w, b, a=args: aten.convolution(x, w, b, *a), x, w, bias)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("transposed", [False, True])
def test_convolution_of_dtypes(agrees: Agrees, dtype: torch.dtype, transposed: bool) -> None:
    x, w, b = _values(2, 4, 7, 6, dtype=dtype), _values(4, 2, 3, 2, dtype=dtype, seed=1), _values(4, dtype=dtype)
    args = ([2, 1], [1, 0], [1, 2], transposed, [0, 0], 2)
    agrees(lambda x, w, b: aten.convolution(x, w, b, *args), x, w, b)


def test_convolution_calls(agrees: Agrees) -> None:
    """Without a batch dim, with an empty batch, padding by name, complex numbers, an output no window reaches."""
    x, w = _values(4, 9, 8), _values(6, 4, 3, 5)
    agrees(lambda x, w: F.conv2d(x, w, padding="same", dilation=(1, 2)), x, w)
    agrees(lambda x, w: F.conv2d(x, w, padding="valid", stride=2), x, w)
    agrees(lambda x, w: F.conv2d(x, w), _values(0, 4, 9, 8), w)
    agrees(lambda x, w: F.conv2d(x, w), torch.complex(x, -x), torch.complex(w, w))
    one, kernel = _values(1, 1, 1), _values(1, 1, 1)
    agrees(lambda x, w: F.conv_transpose1d(x, w, stride=11, padding=5, output_padding=10), one, kernel)


def test_a_transposed_convolution_multiplies_no_padding(agrees: Agrees) -> None:
    w = _values(2, 3, 3)
    w[0, 1, 2] = float("inf")
    agrees(lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1), _values(1, 2, 5), w)


@pytest.mark.parametrize("space", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_of_convolution(agrees: Agrees, space: int, transposed: bool) -> None:
    # The sizes leave a rest that no window reaches.
    for stride, padding, dilation, groups in ((2, 1, 1, 1), (3, 0, 2, 2), (1, 2, 1, 4)):
        x = _values(2, 4, *(8, 9, 7)[:space])
        w = _values(4, 4 // groups, *(3, 2, 2)[:space], seed=1)
        output_padding = [min(stride, 2) - 1 if transposed else 0] * space
        args = ([stride] * space, [padding] * space, [dilation] * space, transposed, output_padding, groups)
        grad = _values(*aten.convolution(x, w, None, *args).shape, seed=2)
        for mask in ([True] * 3, [True, False, False], [False, True, True]):
            call = lambda g, x, w, m=mask, a=args: [  # noqa: E731 - eager has None, or nothing, where the mask is off
                v for v, kept in zip(aten.convolution_backward(g, x, w, [4], *a, m), m, strict=True) if kept
            ]
            # A weight's gradient is a sum of up to 2 * 8 * 9 * 7 products, a rounding each.
            agrees(call, grad, x, w, slack=32)


def _windows(space: int, seed: int) -> Any:
    """A size and a window that eager takes."""
    draw = random.Random(seed)
    kernel = [draw.randint(1, 3) for _ in range(space)]
    padding = [draw.randint(0, k // 2) for k in kernel]
    dilation = [draw.randint(1, 2) for _ in range(space)]
    size = [draw.randint(d * (k - 1) + 1, 8) for k, d in zip(kernel, dilation, strict=True)]
    return size, kernel, [draw.randint(1, 3) for _ in range(space)], padding, dilation


@pytest.mark.few(25)
@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("space", [2, 3])
def test_max_pooling(agrees: Agrees, space: int, seed: int) -> None:
    """Values and places: the first of equals, the last NaN, never the padding."""
    size, *window = _windows(space, seed)
    dtype = (*FLOATS, torch.int64, torch.uint8)[seed % 6]
    x = _special(2, 3, *size, dtype=dtype) if dtype.is_floating_point else _values(3, *size, dtype=dtype)
    pool = getattr(aten, f"max_pool{space}d_with_indices")
    backward = getattr(aten, f"max_pool{space}d_with_indices_backward")
    for ceil_mode in (False, True):
        agrees(lambda x, c=ceil_mode: pool(x, *window, c), x)
        if dtype.is_floating_point:
            values, places = pool(x, *window, ceil_mode)
            grad = _values(*values.shape, dtype=dtype)
            agrees(lambda g, x, i, c=ceil_mode: backward(g, x, *window, c, i), grad, x, places)


def test_a_window_in_the_padding_names_the_place_eager_names(agrees: Agrees) -> None:
    for x in (torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), torch.tensor([[[1, 4, 2, 3], [3, 4, 3, 4]]])):
        agrees(lambda x: aten.max_pool2d_with_indices(x, [2, 2], [2, 2], [1, 1], [3, 1]), x)


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", one_in(3, range(24)))
@pytest.mark.parametrize("space", [2, 3])
def test_average_pooling(agrees: Agrees, space: int, seed: int) -> None:
    size, kernel, stride, padding, _ = _windows(space, seed)
    size = [max(s, k) for s, k in zip(size, kernel, strict=True)]
    dtype = (torch.float32, torch.float64, torch.int64, torch.float32)[seed % 4]
    pool, backward = getattr(aten, f"avg_pool{space}d"), getattr(aten, f"avg_pool{space}d_backward")
    x = _values(*(2,) * (seed % 2), 3, *size, dtype=dtype)
    for ceil_mode, include, divisor in itertools.product((False, True), (False, True), (None, -3)):
        args = (kernel, stride, padding, ceil_mode, include, divisor)
        agrees(lambda x, a=args: pool(x, *a), x)
        if dtype.is_floating_point:
            grad = _values(*pool(x, *args).shape, dtype=dtype)
            agrees(lambda g, x, a=args: backward(g, x, *a), grad, x)


def test_pooling_calls(agrees: Agrees) -> None:
    x = _values(2, 3, 11)
    agrees(lambda x: F.avg_pool1d(x, 3, 2, 1, True, False), x)
    agrees(lambda x: F.max_pool1d(x, 3, 2, 1, 2, True), x)
    agrees(lambda x: F.lp_pool1d(x, 3, 2), x.abs())
    agrees(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), _values(0, 3, 4, 4))
    for dtype in (torch.bfloat16, torch.float16):
        agrees(lambda x: F.avg_pool2d(x, 3), _values(1, 2, 9, 9, dtype=dtype))


@pytest.mark.few(21)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("counts", [(1, 1, 1), (3, 4, 5), (6, 7, 4), (9, 2, 11)])
@pytest.mark.parametrize("space", [2, 3])
def test_adaptive_pooling(agrees: Agrees, space: int, counts: tuple[int, ...], dtype: torch.dtype) -> None:
    """Windows of one length, of several, more windows than elements."""
    count = list(counts[:space])
    average, average_back = (getattr(aten, f"_adaptive_avg_pool{space}d{end}") for end in ("", "_backward"))
    largest, largest_back = (getattr(aten, f"adaptive_max_pool{space}d{end}") for end in ("", "_backward"))
    x, grad = _values(2, 3, *(6, 7, 5)[:space], dtype=dtype), _values(2, 3, *count, dtype=dtype)
    agrees(lambda x: average(x, count), x)
    agrees(average_back, grad, x)
    x = _special(2, 3, *(6, 7, 5)[:space], dtype=dtype)
    agrees(lambda x: largest(x, count), x)
    agrees(largest_back, grad, x, largest(x, count)[1])


@pytest.mark.parametrize("kernel", [(1, 1), (3, 2), (2, 5)])
def test_folding(agrees: Agrees, kernel: tuple[int, int]) -> None:
    for dilation, padding, stride in itertools.product((1, 2), (0, 1), (1, 3)):
        x = _values(2, 3, 9, 11)
        agrees(lambda x, a=(dilation, padding, stride): F.unfold(x, kernel, *a), x)
        columns = F.unfold(x, kernel, dilation, padding, stride)
        agrees(lambda x, a=(dilation, padding, stride): F.fold(x, (9, 11), kernel, *a), columns)
    agrees(lambda x: F.unfold(x, kernel), _values(3, 9, 11, dtype=torch.bfloat16))
    agrees(lambda x: F.unfold(x, kernel), _values(0, 3, 9, 11))


def _modes() -> list[tuple[str, dict[str, Any], int]]:
    image = [("nearest", {}), ("nearest-exact", {}), *(("linear", {"align_corners": c}) for c in (False, True))]
    plane = [("bilinear", {"antialias": a, "align_corners": c}) for a in (False, True) for c in (False, True)]
    plane += [("bicubic", {"antialias": a, "align_corners": c}) for a in (False, True) for c in (False, True)]
    return [(m, o, 1) for m, o in image] + [(m, o, 2) for m, o in plane] + [("trilinear", {}, 3), ("nearest", {}, 3)]


@pytest.mark.few(11)
@pytest.mark.parametrize(("mode", "options", "space"), _modes())
def test_upsampling_and_its_gradient(agrees: Agrees, mode: str, options: dict[str, Any], space: int) -> None:
    x = _values(2, 3, *(5, 7, 4)[:space])

    def both(x: torch.Tensor, size: list[int]) -> Any:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            out = F.interpolate(x, size, mode=mode, **options)
            return out.detach(), *torch.autograd.grad(out, x, torch.cos(out.detach()))

    for size in ([8, 5, 4], [3, 14, 9], [10, 7, 2]):
        agrees(lambda x, s=size[:space]: both(x, s), x)
    for factor in (1.3, 2.0, 0.6):
        given = {k: v for k, v in options.items() if k != "align_corners"}
        agrees(lambda x, f=factor, o=given: F.interpolate(x, scale_factor=f, mode=mode, **o), x)


def test_weights_of_zero_keep_infinities_where_eager_does(agrees: Agrees) -> None:
    x = _values(1, 2, 4, 5)
    x[0, 0, 1, 2] = float("inf")
    for size in ((4, 10), (9, 5), (3, 3)):
        agrees(lambda x, s=size: F.interpolate(x, s, mode="bilinear"), x)
        agrees(lambda x, s=size: F.interpolate(x, s, mode="bilinear", antialias=True), x)
        agrees(lambda x, s=size: F.adaptive_avg_pool2d(x, s), x)


@pytest.mark.parametrize("space", [2, 3])
def test_fractional_max_pooling(agrees: Agrees, space: int) -> None:
    op, back = (getattr(aten, f"fractional_max_pool{space}d{end}") for end in ("", "_backward"))
    for dtype, count, kernel in ((torch.float32, 3, 2), (torch.float64, 1, 3), (torch.float32, 4, 1)):
        size, window = [count] * space, [kernel] * space
        x = _special(2, 3, *(7, 9, 8)[:space], dtype=dtype)
        samples = torch.rand(2, 3, space, dtype=dtype, generator=torch.Generator().manual_seed(2))
        agrees(lambda x, s, w=window, c=size: op(x, w, c, s), x, samples)
        agrees(lambda x, s, w=window, c=size: op(x, w, c, s), x[0], samples)  # those of the first image
        grad, found = _values(2, 3, *size, dtype=dtype), op(x, window, size, samples)[1]
        agrees(lambda g, x, i, w=window, c=size: back(g, x, w, c, i), grad, _values(*x.shape, dtype=dtype), found)


@pytest.mark.parametrize("padding", [[1, 2, 3, 1], [-1, 2, 0, -2], [0, 0, 5, 0]])
def test_gradients_of_repeated_borders(agrees: Agrees, padding: list[int]) -> None:
    for dtype in (torch.float32, torch.float64):
        x = _values(2, 3, 5, 4, dtype=dtype)
        grad = _values(*aten.replication_pad2d(x, padding).shape, dtype=dtype)
        agrees(lambda g, x: aten.replication_pad2d_backward(g, x, padding), grad, x)


def test_gradients_of_shrinking(agrees: Agrees) -> None:
    x = torch.tensor([-2.0, -0.5, -0.1, 0.0, 0.5, 0.7, float("nan"), float("inf")])
    for dtype in (torch.float32, torch.bfloat16):
        both = lambda g, x: (aten.hardshrink_backward(g, x, 0.5), aten.softshrink_backward(g, x, 0.3))  # noqa: E731
        agrees(both, _values(8, dtype=dtype), x.to(dtype))


def test_gradient_of_hardsigmoid(agrees: Agrees) -> None:
    x = torch.tensor([-3.0, -2.9, 0.0, 1.0, 3.0, 4.0, float("nan"), float("inf")])
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        agrees(aten.hardsigmoid_backward, _values(8, dtype=dtype), x.to(dtype))


@pytest.mark.few(5)
@pytest.mark.parametrize("eps", [None, -1.0, -0.0, 0.0, 0.2, 0.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradient_of_logit(agrees: Agrees, eps: float | None, dtype: torch.dtype) -> None:
    """At -0.0 and NaN eager's vectors give others than its single steps, which few numbers are left to."""
    x = torch.tensor([0.3, 0.2, 0.8, 0.0, -0.0, 1.0, -2.0, 3.0, float("nan"), float("inf"), -float("inf"), 0.9])
    defined = x[~x.isnan() & ~((x == 0) & x.signbit())].repeat(4)
    for grad in (1.5, 0.0, float("nan"), -float("inf")):
        for given in (defined.to(dtype), *x.to(dtype).split(3)):
            agrees(lambda g, x: aten.logit_backward(g, x, eps), torch.full(given.shape, grad, dtype=dtype), given)


DYNAMIC: dict[str, Callable[..., Any]] = {
    "convolution": lambda x, w: F.conv2d(x, w, stride=2, padding=1),
    "transposed convolution": lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1),
    "max pooling": lambda x, w: F.max_pool2d(x, 3, 2, 1, return_indices=True),
    "average pooling": lambda x, w: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
    "unfold": lambda x, w: F.unfold(x, 3),
}


@pytest.mark.parametrize(("name", "target"), covering(DYNAMIC, ["evaluator", "linalg"], strength=1))
def test_run_time_sizes(name: str, target: str) -> None:
    dims = {0: torch.export.Dim("n", min=2, max=9), 2: torch.export.Dim("h", min=6, max=40)}
    x, w = _values(3, 4, 12, 8), _values(4, 4, 3, 3, seed=1)
    program = DYNAMIC[name]
    compiled = compile(program, (x, w), target=target, dynamic_shapes=(dims, None))
    for shape in ((2, 4, 7, 8), (5, 4, 20, 8)):
        x = _values(*shape)
        assert_same(compiled(x, w), program(x, w))


@pytest.mark.parametrize("target", ["linalg", "tosa", "tensorrt"])
def test_targets(target: str) -> None:
    """What every target computes: windows that overlap, have gaps, reach outside."""
    x, w = _values(2, 4, 7, 6), _values(4, 2, 3, 2, seed=1)
    programs: list[Callable[..., Any]] = [
        lambda x, w: F.conv2d(x, w, None, (2, 1), (1, 0), (1, 2), 2),
        lambda x, w: F.conv_transpose2d(x, w, None, (2, 1), (1, 0), (1, 0), 2, (1, 2)),
        lambda x, w: F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        lambda x, w: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        lambda x, w: F.adaptive_avg_pool2d(x, (3, 4)),
        lambda x, w: F.adaptive_max_pool2d(x, (3, 4)),
        lambda x, w: F.interpolate(x, (9, 5), mode="bilinear"),
    ]
    for program in programs:
        assert_same(compile(program, (x, w), target=target)(x, w), program(x, w))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_windows_without_elements_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(Unsupported, match="windows of size 0"):
        compile(lambda x: x.unfold(0, 0, 1) + 1, (torch.zeros(shape),))
