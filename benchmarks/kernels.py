"""Named kernels: the time of one call, beside eager's with one thread and beside torch-mlir's path to linalg.

Compiled once and checked against eager, then called in turns, round after round; the ratios are those of one round and
their medians are given, and CPU time is counted, so that they mean something on a busy machine too.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

from torchstone.conformance.backends import load

Kernel = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * y + 1.0) * torch.exp(-x.abs()) - y


def attention(x: torch.Tensor, qkv: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """One block of self-attention, eight heads, written out."""
    batch, length, width = x.shape
    parts = (x @ qkv).reshape(batch, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
    q, k, v = parts[0], parts[1], parts[2]
    weights = torch.softmax(q @ k.transpose(-1, -2) / (width // 8) ** 0.5, -1)
    return (weights @ v).transpose(1, 2).reshape(batch, length, width) @ out


def kernels() -> dict[str, Kernel]:
    r = torch.randn
    return {
        "matmul 512": (torch.matmul, (r(512, 512), r(512, 512))),
        "matmul 512, b transposed": (lambda a, b: a @ b.t(), (r(512, 512), r(512, 512))),
        "batched matmul 16x128": (torch.bmm, (r(16, 128, 128), r(16, 128, 128))),
        "conv2d 3x3": (
            lambda x, w, b: functional.conv2d(x, w, b, padding=1),
            (r(1, 32, 56, 56), r(64, 32, 3, 3), r(64)),
        ),
        "softmax 1024x1024": (lambda x: torch.softmax(x, -1), (r(1024, 1024),)),
        "layer norm 1024x768": (lambda x, w, b: functional.layer_norm(x, (768,), w, b), (r(1024, 768), r(768), r(768))),
        "elementwise chain 1M": (chain, (r(1 << 20), r(1 << 20))),
        "gelu 1M": (functional.gelu, (r(1 << 20),)),
        "attention 1x128x256": (attention, (r(1, 128, 256), r(256, 768) / 16, r(256, 256) / 16)),
    }


def once(call: Callable[..., Any], args: tuple[torch.Tensor, ...], least: float) -> float:
    """Return the CPU seconds of a call in this thread: the best of as many as fit into ``least`` seconds."""
    end, best = time.thread_time() + least, float("inf")
    while True:
        start = time.thread_time()
        call(*args)
        best = min(best, time.thread_time() - start)
        if time.thread_time() > end:
            return best


def compiled(backend: str, kernel: Kernel) -> Callable[..., Any] | None:
    """Return the kernel compiled by a backend, checked against eager; None, with the reason on stderr, if it cannot."""
    fn, args = kernel
    try:
        out = load(backend).compile(fn, args)
        torch.testing.assert_close(out(*args), fn(*args), rtol=1e-4, atol=1e-4)
    except Exception as error:
        print(f"  {backend}: {type(error).__name__}: {str(error).splitlines()[0]}", file=sys.stderr)
        return None
    return out


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", action="append", help="repeatable [linalg, torch-mlir-linalg]")
    parser.add_argument("--kernel", action="append", help="part of a name, repeatable [default: all]")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.05, help="for one kernel of one backend in one round [0.05]")
    parser.add_argument("--warm-up", type=float, default=1.0, help="seconds of calls that do not count [1]")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    names = options.backend or ["linalg", "torch-mlir-linalg"]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows: dict[str, dict[str, float | None]] = {}
    for name, kernel in kernels().items():
        if options.kernel and not any(part in name for part in options.kernel):
            continue
        print(name, file=sys.stderr)
        rows[name] = ratios(kernel, {backend: compiled(backend, kernel) for backend in names}, options)
    middle = {
        backend: round(statistics.median(taken for row in rows.values() if (taken := row[backend]) is not None), 3)
        for backend in names
        if any(row[backend] is not None for row in rows.values())
    }
    if options.format == "json":
        print(json.dumps({"relative_to_eager": rows, "median": middle}, indent=2))
        return
    print(f"time relative to eager with one thread, medians over {options.rounds} rounds; less is faster\n")
    print(f"{'':<28}{'eager, ms':>12}" + "".join(f"{backend:>20}" for backend in names))
    for name, row in rows.items():
        cells = ["-" if row[backend] is None else f"{row[backend]:.2f}" for backend in names]
        print(f"{name:<28}{row['eager_ms']:>12.3f}" + "".join(f"{cell:>20}" for cell in cells))
    print(f"{'median':<28}{'':>12}" + "".join(f"{middle.get(backend, float('nan')):>20.2f}" for backend in names))


def ratios(kernel: Kernel, calls: dict[str, Callable[..., Any] | None], options: Any) -> dict[str, float | None]:
    """Return eager's milliseconds, and each backend's time relative to it: medians over the rounds."""
    fn, args = kernel
    eager: list[float] = []
    found: dict[str, list[float]] = {name: [] for name, call in calls.items() if call is not None}
    for call in (fn, *(calls[name] for name in found)):
        assert call is not None
        once(call, args, options.warm_up)
    for _ in range(options.rounds):
        eager.append(once(fn, args, options.seconds))
        for name, seconds in found.items():
            call = calls[name]
            assert call is not None
            seconds.append(once(call, args, options.seconds) / eager[-1])
    row: dict[str, float | None] = {"eager_ms": round(1000 * statistics.median(eager), 4)}
    return row | {name: round(statistics.median(found[name]), 3) if name in found else None for name in calls}


if __name__ == "__main__":
    main()
