"""Compile and run N distinct programs in one process and say how much memory that leaves behind.

    python benchmarks/leak.py [N]

Exit code 1 when resident memory grows by 50 MB or more between program 200 and the last one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from itertools import product

import torch

from torchstone.compiler.driver import compile

UNARY = ("sin", "exp", "tanh", "abs", "neg", "sqrt", "sigmoid", "floor", "log1p", "erf")
BINARY = ("add", "mul", "sub", "maximum", "div")
LIMIT_MB = 50.0


def program(unary: str, binary: str) -> Callable[..., torch.Tensor]:
    f, g = getattr(torch, unary), getattr(torch, binary)
    return lambda x, y: g(f(x), y).sum(-1) + x.amax()


def resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def main(count: int) -> int:
    sizes = range(1, 1 + count // (len(UNARY) * len(BINARY)) + 1)
    first = 0.0
    for number, (size, unary, binary) in enumerate(product(sizes, UNARY, BINARY)):
        if number == count:
            break
        x, y = torch.rand(3, size), torch.rand(size)
        fn = program(unary, binary)
        torch.testing.assert_close(compile(fn, (x, y))(x, y), fn(x, y))
        if number % 100 == 99:
            gc.collect()
            now = resident_mb()
            first = now if number + 1 == 200 else first
            print(f"{number + 1:6d} programs  {now:8.1f} MB", flush=True)
    grown = resident_mb() - first
    print(f"grew by {grown:.1f} MB after the first 200 programs (limit {LIMIT_MB:.0f} MB)")
    return int(grown >= LIMIT_MB)


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))
