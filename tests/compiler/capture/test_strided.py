"""Programs that go by places in memory: right on row-major tensors, refused on others, guarded at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.sampling import covering
from torchstone.compiler.diagnostics import GuardError, Unsupported
from torchstone.compiler.driver import compile

WINDOW = torch.hann_window(8)


def _add_in_place(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.as_strided((2, 2), (5, 1)).add_(1)
    return y


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "overlapping": lambda x: x.as_strided((2, 3, 2), (1, 1, 0), 1),
    "a computed tensor": lambda x: (x + 1).as_strided((2, 2), (1, 2)),
    "no elements": lambda x: x.as_strided((0, 2), (100, 100)),
    "one element": lambda x: x.as_strided((), (), 5),
    "a copy": lambda x: torch.as_strided_copy(x, (4, 3), (1, 4)),
    "scatter": lambda x: torch.as_strided_scatter(x, -x[:2, :2], (2, 2), (5, 1), 2),
    "scatter, narrower": lambda x: torch.as_strided_scatter(x.int(), 9 * x[:2, :2], (2, 2), (5, 1), 2),
    "scatter, unsigned": lambda x: torch.as_strided_scatter(x.int().to(torch.uint16), x[:2, :2] > 0, (2, 2), (5, 1), 2),
    "scatter, wider": lambda x: torch.as_strided_scatter(x, x[:2, :2] > 0, (2, 2), (5, 1), 2),
    "in place": _add_in_place,
    "frames": lambda x: torch.stft(x.reshape(-1).repeat(3), 8, 3, window=WINDOW, return_complex=True),
}


@pytest.mark.parametrize(("name", "target"), covering(PROGRAMS, ["evaluator", "linalg"], strength=1))
def test_agrees_with_eager(name: str, target: str) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    program = PROGRAMS[name]
    torch.testing.assert_close(compile(program, (x,), target=target)(x), program(x))


def test_overlapped_frames_are_added() -> None:
    frames = torch.stft(
        torch.randn(30, generator=torch.Generator().manual_seed(0)), 8, window=WINDOW, return_complex=True
    )
    program = lambda f: torch.istft(f, 8, window=WINDOW)  # noqa: E731 - the program
    torch.testing.assert_close(compile(program, (frames,), target="evaluator")(frames), program(frames))


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a transposed tensor": lambda x: x.t().as_strided((2, 2), (1, 2)),
    "a part of a tensor": lambda x: x[1:].as_strided((2, 2), (1, 2)),
    "past the tensor": lambda x: x[:1].as_strided((3, 4), (4, 1)),
    "a copy of a transposed tensor": lambda x: torch.as_strided_copy(x.t(), (2, 2), (1, 2)),
    "a negative size": lambda x: torch.as_strided_copy(x, (-1, 0), (1, 1)),
    "written twice": lambda x: torch.as_strided_scatter(x, x[:2, :2], (2, 2), (1, 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_memory_of_others_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match="as_strided"):
        compile(REFUSED[name], (torch.randn(3, 4),), target="evaluator")


def test_arguments_lie_in_memory_as_the_example_did() -> None:
    compiled = compile(lambda x: x.as_strided((2, 2), (1, 2)), (torch.randn(3, 4),), target="evaluator")
    with pytest.raises(GuardError, match="lies in memory in another way"):
        compiled(torch.randn(4, 3).t())
    with pytest.raises(GuardError, match="lies in memory in another way"):
        compiled(torch.randn(4, 4)[1:])


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("dtype", [torch.complex32, torch.bool, torch.float8_e5m2, torch.uint16])
def test_a_view_of_any_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([[1, 0, 3], [0, 5, 1]]).to(dtype)
    program = lambda x: x.as_strided((2, 2), (3, 1), 1)  # noqa: E731 - the program
    got = compile(program, (x,), target="linalg")(x)
    assert torch.equal(got.contiguous().view(torch.uint8), program(x).contiguous().view(torch.uint8))
