"""Operators in TOSA and layers in TensorRT: how many a program becomes; in TOSA by torch-mlir's path, too, if there.

Constants and shapes are not counted, and parameters are constants on both paths. Nothing runs: what the operators
compute is what the suite checks.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from torchstone.compiler import driver
from torchstone.conformance.sources.models.gpt import Block
from torchstone.conformance.sources.models.resnet import ResNet
from torchstone.conformance.sources.models.unet import UNet

Program = tuple[Callable[..., Any], tuple[Any, ...]]

_OPERATOR = re.compile(r"(?<!!)\btosa\.(\w+)")  # types have a ! before them
_DATA = frozenset({"const", "const_shape", "yield"})
_LAYER = re.compile(r"^  %[^=]* = (\w+)\(", re.MULTILINE)


def operators(text: str) -> Counter[str]:
    """Count the TOSA operators in MLIR text by name, without types, constants, shapes and ends of regions."""
    return Counter(name for name in _OPERATOR.findall(text) if name not in _DATA)


def layers(text: str) -> Counter[str]:
    """Count the layers in the text of a TensorRT network by type, without constants and shapes."""
    return Counter(name for name in _LAYER.findall(text) if name not in ("CONSTANT", "SHAPE"))


def programs() -> dict[str, Program]:
    """Return the programs by name, with arguments: common ops, then models."""
    r, f = torch.randn, functional
    x, image, matrix = r(4, 8), r(2, 4, 8, 8), r(4, 4)
    unary = {
        "relu": f.relu, "relu6": f.relu6, "hardtanh": f.hardtanh, "leaky_relu": f.leaky_relu, "elu": f.elu,
        "gelu": f.gelu, "silu": f.silu, "sigmoid": torch.sigmoid, "tanh": torch.tanh, "hardsigmoid": f.hardsigmoid,
        "hardswish": f.hardswish, "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt,
        "reciprocal": torch.reciprocal, "abs": torch.abs, "neg": torch.neg, "floor": torch.floor, "sin": torch.sin,
        "erf": torch.erf, "softmax": lambda x: x.softmax(-1), "log_softmax": lambda x: x.log_softmax(-1),
        "mean": lambda x: x.mean(-1), "sum": lambda x: x.sum(-1), "amax": lambda x: x.amax(-1),
        "clamp": lambda x: x.clamp(-1, 1), "layer_norm": lambda x: f.layer_norm(x, (8,)),
        "transpose": lambda x: x.t().contiguous(),
    }  # fmt: skip
    binary = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "maximum": torch.maximum}
    return {
        **{name: (fn, (x,)) for name, fn in unary.items()},
        **{name: (fn, (x, r(4, 8))) for name, fn in binary.items()},
        "matmul": (torch.matmul, (matrix, r(4, 4))),
        "linear": (f.linear, (x, r(3, 8), r(3))),
        "bmm": (torch.bmm, (r(2, 3, 4), r(2, 4, 5))),
        "conv2d": (lambda *a: f.conv2d(*a, padding=1), (image, r(6, 4, 3, 3), r(6))),
        "depthwise conv2d": (lambda *a: f.conv2d(*a, padding=1, groups=4), (image, r(4, 1, 3, 3), r(4))),
        "max_pool2d": (lambda x: f.max_pool2d(x, 2), (image,)),
        "avg_pool2d": (lambda x: f.avg_pool2d(x, 2), (image,)),
        "batch_norm": (lambda *a: f.batch_norm(*a), (image, r(4), r(4).abs(), r(4), r(4))),
        "MLP": (nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).eval(), (x,)),
        "GPT block": (_Alone(Block(64, 4)).eval(), (r(1, 16, 64),)),
        "U-Net": (UNet(8).eval(), (r(1, 3, 32, 32),)),
        "ResNet-18": (ResNet(64, 1000).eval(), (r(1, 3, 224, 224),)),
    }


def ours(fn: Callable[..., Any], args: tuple[Any, ...]) -> Counter[str]:
    return operators(driver.compile(fn, args, "tosa", freeze=True).ir["tosa"])


def in_tensorrt(fn: Callable[..., Any], args: tuple[Any, ...]) -> Counter[str]:
    return layers(driver.compile(fn, args, "tensorrt", freeze=True).ir["tensorrt"])


def torch_mlirs(fn: Callable[..., Any], args: tuple[Any, ...]) -> Counter[str]:
    from torch_mlir import fx

    module = fn if isinstance(fn, nn.Module) else _Module(fn)
    return operators(str(fx.export_and_import(module, *args, output_type="tosa")))


class _Alone(nn.Module):
    """A block of the transformer, without keys and values from before."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> Any:
        return self.block(x, None)[0]


class _Module(nn.Module):
    """A function, for torch.export."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, *args: Any) -> Any:
        return self.fn(*args)


def counted(count: Callable[..., Counter[str]], program: Program, label: str) -> Counter[str] | None:
    """Return the operators; None, with the reason on stderr, for a program that is declined."""
    try:
        return count(*program)
    except Exception as error:
        print(f"  {label}: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}", file=sys.stderr)
        return None


def ratio(rows: dict[str, dict[str, Counter[str] | None]]) -> float | None:
    """Return the geometric mean of ours over theirs where both have operators; None where no row has both."""
    logs = [
        math.log(a.total() / b.total())
        for row in rows.values()
        if (a := row["tosa"]) and (b := row.get("torch-mlir-tosa"))
    ]
    return math.exp(sum(logs) / len(logs)) if logs else None


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", action="append", help="part of a name, repeatable [default: all]")
    parser.add_argument("--kinds", action="store_true", help="print how many of each operator there are, too")
    parser.add_argument("--format", choices=("table", "json"), default="table")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    counts = {"tosa": ours}
    if find_spec("torch_mlir") is not None:
        counts["torch-mlir-tosa"] = torch_mlirs
    counts["tensorrt"] = in_tensorrt
    chosen = {n: p for n, p in programs().items() if not options.program or any(s in n for s in options.program)}
    rows = {
        name: {backend: counted(count, program, f"{name}, {backend}") for backend, count in counts.items()}
        for name, program in chosen.items()
    }
    mean = ratio(rows)
    if options.format == "json":
        print(json.dumps({"operators": rows, "geometric_mean_of_ratios": mean}, indent=2))
        return
    print(f"{'':<20}" + "".join(f"{backend:>18}" for backend in counts))
    for name, row in rows.items():
        print(f"{name:<20}" + "".join(f"{'-' if row[b] is None else row[b].total():>18}" for b in counts))
        for backend, found in row.items() if options.kinds else ():
            print(f"    {backend}: " + ", ".join(f"{n} {kind}" for kind, n in (found or Counter()).most_common()))
    if mean is not None:
        print(f"geometric mean of ours over torch-mlir's, where both have operators: {mean:.2f}")


if __name__ == "__main__":
    main()
