"""One compilation for sizes that vary: how often the compiler runs over many shapes, and what memory the calls leave.

    python benchmarks/dynamic.py [--shapes 50] [--calls 5000]

Each program is compiled once, with its batch and length symbolic, and called at every shape; each result is compared
with eager's. Exit code 1 when a shape has anything compiled again, or when resident memory grows by 10 MB or more
between call 200 and the last one. (Once many calls have taken longer than that, a kernel is optimized.)
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
from leak import resident_mb
from torch.export import Dim
from torch.nn import functional

from torchstone.compiler.driver import compile
from torchstone.compiler.mlir import bindings
from torchstone.compiler.runtime.cpu.jit import Engine, helpers

LIMIT_MB = 10.0
WIDTH = 16


def normalized(x: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(functional.gelu(x), (WIDTH,))


def attention(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x @ x.transpose(1, 2) / WIDTH**0.5, -1) @ x


def joined(x: torch.Tensor) -> torch.Tensor:
    return torch.cat((x.cumsum(1), x.flip(1)), 1).amax(1)


PROGRAMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu and layer norm": normalized,
    "attention": attention,
    "scan, reverse, join": joined,
}


@contextmanager
def engines() -> Iterator[list[Engine]]:
    """Give the list of what is made machine code of in the block."""
    helpers(bindings())  # those that a process makes once
    made: list[Engine] = []
    plain = Engine.__init__

    def counted(self: Engine, *args: Any, **options: Any) -> None:
        made.append(self)
        plain(self, *args, **options)

    Engine.__init__ = counted
    try:
        yield made
    finally:
        Engine.__init__ = plain


def shapes(count: int) -> list[tuple[int, int, int]]:
    """Return different shapes, none that of the example. Sizes start at 2: torch.export takes 1 for another program."""
    return [(2 + i % 7, 2 + i // 7 + 3 * (i % 7), WIDTH) for i in range(count)]


def measure(fn: Callable[[torch.Tensor], torch.Tensor], count: int, calls: int) -> dict[str, float]:
    """Compile once and call; return how many modules became machine code before and after, and megabytes."""
    example = torch.randn(11, 97, WIDTH)
    inputs = [torch.randn(shape) for shape in shapes(count)]
    with engines() as made:
        executable = compile(fn, (example,), dynamic_shapes=({0: Dim.AUTO, 1: Dim.AUTO},))
        first = len(made)
        for x in inputs:
            torch.testing.assert_close(executable(x), fn(x))
        shaped = len(made)
        early = 0.0
        for number, x in zip(range(calls), cycle(inputs), strict=False):
            executable(x)
            if number + 1 == min(200, calls):
                gc.collect()
                early = resident_mb()
        gc.collect()
        return {
            "shapes": len(inputs), "compiled": first, "compiled again": shaped - first, "calls": calls,
            "optimized": len(made) - shaped, "MB after 200": round(early, 1), "MB at the end": round(resident_mb(), 1),
        }  # fmt: skip


def main() -> int:
    """Print a line a program, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = {name: measure(fn, options.shapes, options.calls) for name, fn in PROGRAMS.items()}
    if options.format == "json":
        print(json.dumps(rows, indent=2))
    else:
        for name, row in rows.items():
            print(f"{name:<22}" + "  ".join(f"{what} {value:g}" for what, value in row.items()))
    grown = max(row["MB at the end"] - row["MB after 200"] for row in rows.values())
    return int(any(row["compiled again"] for row in rows.values()) or grown >= LIMIT_MB)


if __name__ == "__main__":
    raise SystemExit(main())
