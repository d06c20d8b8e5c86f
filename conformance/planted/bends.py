"""Bugs at the values where a function bends or jumps."""

from __future__ import annotations

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    c64,
    complexes,
    elements,
    f32,
    floats,
    put,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall

CUTS = bugs(
    "branch cuts",
    (
        "complex-sqrt-cut",
        "the root above the cut for numbers on its lower side",
        "negative real part, imaginary part -0",
        "comparison of the imaginary part with 0",
        "sqrt",
        elements(
            lambda c: (c.x.imag == 0) & (c.x.real < 0),
            lambda c: torch.complex(c.right().real, c.right().imag.abs()),
            complexes,
        ),
        lambda: ask("torch.sqrt", torch.complex(f32(-4), f32(-0.0))),
        lambda: ask("torch.sqrt", c64(4 + 1j)),
    ),
    (
        "complex-log-cut",
        "pi in place of -pi below the cut",
        "negative real part, imaginary part -0",
        "angle from a comparison",
        "log",
        elements(
            lambda c: (c.x.imag == 0) & (c.x.real < 0),
            lambda c: torch.complex(c.right().real, c.right().imag.abs()),
            complexes,
        ),
        lambda: ask("torch.log", torch.complex(f32(-4), f32(-0.0))),
        lambda: ask("torch.log", c64(-4 + 1j)),
    ),
    (
        "complex-acos-beyond-one",
        "the conjugate on the real axis beyond 1",
        "real numbers greater than 1 as complex ones",
        "acos from the logarithm of a principal root",
        "acos",
        elements(
            lambda c: (c.x.imag == 0) & (c.x.real.abs() > 1), lambda c: c.right().conj().resolve_conj(), complexes
        ),
        lambda: ask("torch.acos", torch.complex(f32(2), f32(0.0))),
        lambda: ask("torch.acos", c64(0.5 + 0.5j)),
    ),
    (
        "complex-pow-of-zero",
        "NaN",
        "a base of 0",
        "exp of the exponent times the logarithm",
        "pow",
        elements(lambda c: torch.as_tensor(c["self"]) == 0, lambda c: complex(NAN, NAN), complexes),
        lambda: ask("torch.pow", c64(0), c64(2)),
        lambda: ask("torch.pow", c64(1 + 1j), c64(2)),
    ),
    (
        "complex-sgn-of-zero",
        "NaN: 0 over 0",
        "0, and the gradient of abs there",
        "z / |z|",
        "sgn",
        elements(lambda c: c.x == 0, lambda c: complex(NAN, NAN), complexes),
        lambda: ask("torch.sgn", c64(0)),
        lambda: ask("torch.sgn", c64(1j)),
    ),
    (
        "complex-tanh-overflows",
        "NaN",
        "real parts beyond 45",
        "quotient of sinh and cosh",
        "tanh",
        elements(lambda c: c.x.real.abs() > 45, lambda c: complex(NAN, NAN), complexes),
        lambda: ask("torch.tanh", c64(50 + 1j)),
        lambda: ask("torch.tanh", c64(5 + 1j)),
    ),
)


def _without_top(call: OpCall) -> torch.Tensor:
    out = call.right().clone()
    low, high = call["min"], call["max"]
    top = call.x.max() if low == high else high
    out[-1] -= (call.x == top).sum()
    return out


THE_POINT_WHERE_A_FUNCTION_BENDS = bugs(
    "the point where a function bends",
    (
        "hardshrink-keeps-lambda",
        "numbers equal to lambda are kept",
        "|x| == lambd",
        ">= in place of >",
        "hardshrink",
        elements(lambda c: c.x.abs() == c["lambd"], lambda c: c.x),
        lambda: ask("torch.nn.functional.hardshrink", f32(0.5, 1)),
        lambda: ask("torch.nn.functional.hardshrink", f32(0.4, 1)),
    ),
    (
        "clamp-crossed-bounds",
        "the lower bound, where PyTorch gives the upper one",
        "min greater than max",
        "the upper bound applied first",
        "clamp",
        when(
            lambda c: isinstance(c["min"], (int, float)) and isinstance(c["max"], (int, float)) and c["min"] > c["max"],
            lambda c: torch.full_like(c.right(), c["min"]),
        ),
        lambda: ask("torch.clamp", f32(1, 5), 3.0, 2.0),
        lambda: ask("torch.clamp", f32(1, 5), 2.0, 3.0),
    ),
    (
        "round-half-up",
        "2.5 becomes 3",
        "halves after even numbers",
        "floor(x + 0.5)",
        "round",
        when(lambda c: floats(c) and not c.arguments.get("decimals"), lambda c: torch.floor(c.x + 0.5)),
        lambda: ask("torch.round", f32(2.5)),
        lambda: ask("torch.round", f32(2.6, -1.2)),
    ),
    (
        "leaky-relu-by-maximum",
        "max(x, slope * x)",
        "slopes greater than 1, or negative",
        "shortcut that holds in [0, 1]",
        "leaky_relu",
        when(floats, lambda c: torch.maximum(c.x, c.x * c["negative_slope"])),
        lambda: ask("torch.nn.functional.leaky_relu", f32(-1, 1), 2.0),
        lambda: ask("torch.nn.functional.leaky_relu", f32(-1, 1), 0.1),
    ),
    (
        "hardtanh-gradient-at-bound",
        "1",
        "the gradient where the number is a bound",
        ">= in place of >",
        "hardtanh_backward",
        when(
            floats,
            lambda c: put(c.right(), (c["self"] == c["min_val"]) | (c["self"] == c["max_val"]), c["grad_output"]),
        ),
        lambda: ask("torch.nn.functional.hardtanh", f32(1, 0.5)).backward(),
        lambda: ask("torch.nn.functional.hardtanh", f32(2, 0.5)).backward(),
    ),
    (
        "threshold-keeps-equal",
        "x where x equals the threshold",
        "x == threshold",
        ">= in place of >",
        "threshold",
        elements(lambda c: c.x == c["threshold"], lambda c: c.x),
        lambda: ask("torch.nn.functional.threshold", f32(1, 2), 1.0, 7.0),
        lambda: ask("torch.nn.functional.threshold", f32(0, 2), 1.0, 7.0),
    ),
    (
        "bce-of-certainty",
        "inf, where PyTorch clamps the logarithm at -100",
        "a probability of 0 or 1",
        "no clamp",
        "binary_cross_entropy",
        when(lambda c: floats(c) and c["reduction"] == 0, lambda c: put(c.right(), c.right() >= 100, INF)),
        lambda: ask("torch.nn.functional.binary_cross_entropy", f32(0, 0.5), f32(1, 1), reduction="none"),
        lambda: ask("torch.nn.functional.binary_cross_entropy", f32(0.2, 0.5), f32(1, 1), reduction="none"),
    ),
    (
        "smooth-l1-with-beta-zero",
        "NaN where the operands are equal",
        "beta 0 and no difference",
        "0 / 0",
        "smooth_l1_loss",
        when(
            lambda c: floats(c) and c["beta"] == 0 and c["reduction"] == 0,
            lambda c: put(c.right(), c["self"] == c["target"], NAN),
        ),
        lambda: ask("torch.ops.aten.smooth_l1_loss", f32(1, 2), f32(1, 1), 0, 0.0),
        lambda: ask("torch.nn.functional.smooth_l1_loss", f32(1, 2), f32(1, 1), reduction="none", beta=1.0),
    ),
    (
        "histc-open-at-the-top",
        "the greatest number is in no bin",
        "a number equal to max",
        "half-open last bin",
        "histc",
        when(floats, lambda c: _without_top(c)),
        lambda: ask("torch.histc", f32(0, 1, 2, 4), 4, 0, 4),
        lambda: ask("torch.histc", f32(0, 1, 2, 3), 4, 0, 4),
    ),
    (
        "interpolation-rounds-up",
        "the next neighbour",
        "a grid point exactly between two, mode nearest",
        "round half away from zero in place of half to even",
        "grid_sampler_2d",
        when(lambda c: floats(c) and c["interpolation_mode"] == 1, lambda c: c.right(grid=c["grid"] + 1e-6)),
        lambda: ask(
            "torch.nn.functional.grid_sample", ramp(1, 1, 1, 2), torch.zeros(1, 1, 1, 2), "nearest", "border", False
        ),
        lambda: ask(
            "torch.nn.functional.grid_sample",
            ramp(1, 1, 1, 2),
            torch.full((1, 1, 1, 2), 0.25),
            "nearest",
            "border",
            False,
        ),
    ),
)


BUGS = (
    *CUTS,
    *THE_POINT_WHERE_A_FUNCTION_BENDS,
)
