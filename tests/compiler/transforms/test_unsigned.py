"""uint16, uint32 and uint64 beside every other dtype: what eager takes gives eager's dtype and values."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from torchstone.compiler.driver import compile

UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
OTHERS = (
    *UNSIGNED, torch.uint8, torch.int8, torch.int64, torch.bool, torch.bfloat16, torch.float32, torch.complex64,
)  # fmt: skip
BINARY: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
    "eq": torch.eq,
    "lt": torch.lt,
    "maximum": torch.maximum,
    "bitwise_and": torch.bitwise_and,
    "where": lambda x, y: torch.where(x == y, x, y),
    "cat": lambda x, y: torch.cat([x, y.reshape(-1)]),
    "number": lambda x, y: x * 3 + 1,
}
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": torch.sum,
    "sort": lambda x: x.sort().values,
    "index": lambda x: x[torch.tensor([2, 0])],
    "float": lambda x: x.float(),
    "int8": lambda x: x.to(torch.int8),
    "number": lambda x: x * 2.5,
}


def _all_that_eager_takes(program: Callable[..., torch.Tensor], tries: list[tuple[torch.Tensor, ...]]) -> None:
    """Compile what eager takes as one program, which is cheap, and compare each of its results."""
    taken = []
    for args in tries:
        try:
            program(*args)
        except (RuntimeError, NotImplementedError):
            continue
        taken.append(args)
    flat = tuple(x for args in taken for x in args)
    arity = len(tries[0])

    def every(*flat: torch.Tensor) -> list[torch.Tensor]:
        return [program(*flat[i : i + arity]) for i in range(0, len(flat), arity)]

    assert taken
    for got, want, args in zip(compile(every, flat, "linalg")(*flat), every(*flat), taken, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m, args=args: f"{args}: {m}")


@pytest.mark.few(4)
@pytest.mark.parametrize("name", BINARY)
def test_beside_another_dtype(name: str) -> None:
    x, y = torch.tensor([0, 1, 2, 200, 127]), torch.tensor([1, 1, 2, 5, 100])
    pairs = [(a, b) for a in OTHERS for b in OTHERS if a in UNSIGNED or b in UNSIGNED]
    tries = [(x.to(a), shape) for a, b in pairs for shape in (y.to(b), y[2].to(b))]
    _all_that_eager_takes(BINARY[name], tries)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_alone(name: str) -> None:
    _all_that_eager_takes(FUNCTIONS[name], [(torch.tensor([0, 1, 2, 3, 60000]).to(d),) for d in UNSIGNED])
