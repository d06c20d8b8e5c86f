"""grid_sample against eager, with points inside and outside, at borders and at no place at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import functional as F

from tests.sampling import covering
from torchstone.compiler.diagnostics import Unsupported
from torchstone.compiler.driver import compile

Agrees = Callable[..., None]
NAN, INF = float("nan"), float("inf")
# The gradient by a point multiplies differences of neighbours by the size of the image: in 16 bits each is rounded.
ROUNDINGS = 8.0


@pytest.mark.parametrize(
    ("dtype", "space", "padding", "align"),
    covering(
        [torch.float32, torch.float64, torch.float16, torch.bfloat16],
        [2, 3],
        ["zeros", "border", "reflection"],
        [True, False],
    ),
)
def test_points(agrees: Agrees, dtype: torch.dtype, space: int, padding: str, align: bool) -> None:
    torch.manual_seed(0)
    image, grid = torch.randn(2, 3, *range(4, 4 + space)), torch.rand(2, *[4] * space, space) * 5 - 2.5
    for mode in ("bilinear", "nearest", "bicubic")[: 5 - space]:
        agrees(lambda x, g, m=mode: F.grid_sample(x, g, m, padding, align), image.to(dtype), grid.to(dtype))


@pytest.mark.parametrize("space", [2, 3])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_coordinates_that_are_no_place(agrees: Agrees, space: int, padding: str, align: bool) -> None:
    line = torch.tensor([NAN, INF, -INF, 1e30, 3e9, 0.5, -0.0, 1.0, -1.0])
    grid = torch.stack(torch.meshgrid(*[line] * space, indexing="ij"), -1)[None]
    image = torch.randn(1, 2, *range(3, 3 + space))
    for mode in ("bilinear", "nearest", "bicubic")[: 5 - space]:
        agrees(lambda x, g, m=mode: F.grid_sample(x, g, m, padding, align), image, grid)


def test_an_image_of_one_pixel(agrees: Agrees) -> None:
    grid = torch.rand(1, 4, 4, 2) * 3 - 1.5
    for padding in ("zeros", "border", "reflection"):
        for align in (True, False):
            agrees(lambda x, g, p=padding, a=align: F.grid_sample(x, g, "bilinear", p, a), torch.ones(1, 1, 1, 1), grid)


@pytest.mark.few(10)
@pytest.mark.parametrize(
    ("dtype", "sizes", "padding", "align"),
    covering([torch.float32, torch.bfloat16], [(4, 5), (4, 5, 6), (1, 1), (1, 1, 1)], [0, 1, 2], [True, False]),
)
def test_backward(agrees: Agrees, dtype: torch.dtype, sizes: tuple[int, ...], padding: int, align: bool) -> None:
    """Of the image and of the grid, or of the grid alone; at the border and beyond it nothing moves."""
    torch.manual_seed(0)
    space = len(sizes)
    op = torch.ops.aten.grid_sampler_2d_backward if space == 2 else torch.ops.aten.grid_sampler_3d_backward
    image, grid = torch.randn(2, 3, *sizes), torch.rand(2, *[4] * space, space) * 5 - 2.5
    args = [v.to(dtype) for v in (torch.randn(2, 3, *[4] * space), image, grid)]
    for mode in (0, 1, 2)[: 5 - space]:
        agrees(lambda g, x, p, m=mode: op(g, x, p, m, padding, align, [True, True]), *args, slack=ROUNDINGS)
    agrees(lambda g, x, p: op(g, x, p, 0, padding, align, [False, True])[1], *args, slack=ROUNDINGS)


@pytest.mark.parametrize(
    ("space", "dtype"),
    [(2, torch.float16), (2, torch.bfloat16), *((3, d) for d in (torch.float32, torch.float64, torch.bfloat16))],
)
def test_terms_that_cancel_are_added_up_in_turn(space: int, dtype: torch.dtype) -> None:
    """A small pixel between large ones that cancel is lost, as in eager; every product here is exact."""
    image = torch.ones(1, 1, *[2] * space, dtype=dtype)
    large = 4 / torch.finfo(dtype).eps
    image.view(-1)[1], image.view(-1)[2] = large, -large
    grid = torch.zeros(1, *[1] * space, space, dtype=dtype)
    sample = partial(F.grid_sample, align_corners=True)
    expected = torch.full((1, 1, *[1] * space), (2**space - 3) / 2**space, dtype=dtype)
    torch.testing.assert_close(sample(image, grid), expected, rtol=0, atol=0)
    for target in ("evaluator", "linalg"):
        got = compile(sample, (image, grid), target=target)(image, grid)
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("padding", ["border", "reflection"])
@pytest.mark.parametrize("align", [True, False])
def test_places_that_overflow_leave_eagers_digits(padding: str, align: bool) -> None:
    """Terms of every size that cancel, at points of which one coordinate overflows: no two orders of sums agree."""
    torch.manual_seed(0)
    grid = torch.rand(1, 8, 8, 8, 3) * 4 - 2
    grid[..., 0].view(-1)[::3] = -torch.finfo(torch.float32).max
    image = torch.randn(1, 4, 4, 5, 6)
    image[:, 1] = image[:, 1].sign()
    sample = partial(F.grid_sample, padding_mode=padding, align_corners=align)
    got = compile(sample, (image, grid), target="linalg")(image, grid)
    torch.testing.assert_close(got, sample(image, grid), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("space", [2, 3])
def test_the_nearest_pixel_keeps_its_sign(space: int) -> None:
    """Nothing is added to it, not even a zero."""
    image, grid = torch.full((1, 1, *[2] * space), -0.0), torch.zeros(1, *[1] * space, space)
    sample = partial(F.grid_sample, mode="nearest", align_corners=False)
    assert sample(image, grid).signbit().all()
    assert compile(sample, (image, grid), target="linalg")(image, grid).signbit().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("padding", [0, 1, 2])
@pytest.mark.parametrize("align", [True, False])
def test_gradients_at_coordinates_that_are_no_place(
    agrees: Agrees, dtype: torch.dtype, padding: int, align: bool
) -> None:
    """A coordinate that is no number moves nothing, though its value is the last pixel's."""
    line = torch.tensor([NAN, INF, -INF, 0.5, -0.0, 1.0, -1.0, 2.25, -3.5], dtype=dtype)
    grid = torch.stack(torch.meshgrid(*[line] * 3, indexing="ij"), -1)[None]
    image, grad = torch.randn(1, 2, 3, 4, 5, dtype=dtype), torch.randn(1, 2, 9, 9, 9, dtype=dtype)
    op = torch.ops.aten.grid_sampler_3d_backward
    for mode in (0, 1):
        agrees(lambda g, x, p, m=mode: op(g, x, p, m, padding, align, [True, True]), grad, image, grid, slack=ROUNDINGS)


@pytest.mark.parametrize("align", [True, False])
def test_gradients_far_outside_are_mirrored_as_the_places(agrees: Agrees, align: bool) -> None:
    """Where a coordinate has no digits left to tell one mirror image from the next, the direction follows the place."""
    torch.manual_seed(0)
    grid = torch.randn(1, 6, 6, 6, 3) * 2.0**27
    image, grad = torch.randn(1, 2, 4, 5, 6), torch.randn(1, 2, 6, 6, 6)
    op = torch.ops.aten.grid_sampler_3d_backward
    agrees(lambda g, x, p: op(g, x, p, 0, 2, align, [True, True]), grad, image, grid, slack=ROUNDINGS)


def test_near_the_first_pixel_no_digits_are_lost() -> None:
    """A place next to 0 is a difference of near numbers: eager rounds it once, and so has it to seven digits."""
    grid = (torch.tensor([1e-3, 1e-4, -1e-5], dtype=torch.float64) * 2 / 3 - 2 / 3).float()
    grid = torch.stack((grid, torch.full_like(grid, -2 / 3)), -1)[None, None]
    image = torch.zeros(1, 1, 3, 3)
    image[..., 1] = 1
    sample = partial(F.grid_sample, align_corners=False)
    got = compile(sample, (image, grid), target="linalg")(image, grid)
    torch.testing.assert_close(got, sample(image, grid), rtol=1e-6, atol=0)


def test_the_gradient_of_an_even_image_is_nothing() -> None:
    """The slopes of the weights add up to 0."""
    op = torch.ops.aten.grid_sampler_2d_backward
    grad, image, grid = torch.randn(1, 2, 4, 4), torch.ones(1, 2, 6, 6), torch.rand(1, 4, 4, 2) * 0.2
    compiled = compile(lambda *args: op(*args, 2, 1, False, (True, True)), (grad, image, grid), target="linalg")
    assert not compiled(grad, image, grid)[1].any()


@pytest.mark.parametrize("large", [1.5, 0.2])
def test_a_large_pixel_that_counts_for_little_does_not_overflow(large: float) -> None:
    """Its weight comes first, then the gradient, and how fast the place moves comes last."""
    op = torch.ops.aten.grid_sampler_2d_backward
    image = torch.full((1, 1, 4, 6), 0.5)
    image[0, 0, 2, 3] = torch.finfo(torch.float32).max
    grid = torch.tensor([[[[0.0, -0.25], [0.01, -0.2499], [0.0, -0.24]]]])  # at row 1, and hardly below it
    args = (torch.full((1, 1, 1, 3), large), image, grid)
    compiled = compile(lambda *given: op(*given, 0, 1, False, (True, True)), args, target="linalg")
    got, expected = compiled(*args)[1], op(*args, 0, 1, False, (True, True))[1]
    assert torch.equal(got.isfinite(), expected.isfinite()) and expected[..., 0].isfinite().all()
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_cubic_sums_overflow_row_by_row(dtype: torch.dtype) -> None:
    """As eager's: infinities that then meet are NaN, and what is small is lost beside large terms that cancel."""
    largest = torch.finfo(dtype).max
    image = torch.tensor([[1.0, largest, -2.0, largest], [largest, 0.3, 0.7, -largest]] * 2).to(dtype)[None, None]
    grid = torch.cat([torch.rand(1, 30, 4, 2) * 3 - 1.5, torch.tensor([[[[0.0, 0.3], [0.5, 0.0]] * 2]])], 1).to(dtype)
    for padding in ("border", "reflection"):
        program = partial(F.grid_sample, mode="bicubic", padding_mode=padding, align_corners=False)
        got, expected = compile(program, (image, grid))(image, grid), program(image, grid)
        assert expected.isnan().any() and torch.equal(got.isfinite(), expected.isfinite())
        assert torch.equal(got.isnan(), expected.isnan())


def test_what_eager_leaves_unwritten_is_refused() -> None:
    args = torch.zeros(1, 1, 3, 3), torch.zeros(1, 2, 2, 2)
    with pytest.raises(Unsupported, match="the interpolation mode 21"):
        compile(lambda x, grid: torch.grid_sampler_2d(x, grid, 21, 0, False), args)
