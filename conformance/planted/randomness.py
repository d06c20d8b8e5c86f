"""Bugs of random numbers."""

from __future__ import annotations

import math
from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs, steps
from torchstone.conformance.planted.changes import (
    f32,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall
from torchstone.conformance.program.literals import Ref


def _mean(out: Any) -> float:
    return float(out.double().mean())


def _spread(out: Any) -> float:
    return float(out.double().std())


def _neighbours(out: Any) -> float:
    flat = out.flatten()
    return float((flat[1:] == flat[:-1]).double().mean())


def _overwritten(call: OpCall, value: Any) -> torch.Tensor:
    out = call.right()
    return out.copy_(value(out))


def _in_fours(out: torch.Tensor) -> torch.Tensor:
    flat = out.flatten()
    return flat[torch.arange(flat.numel()) // 4 * 4].reshape(out.shape)


def _repeated(call: OpCall) -> Any:
    """Each draw of a program starts from the same state of the generator."""
    key = ("state", call.state["calls"])
    if key not in call.state:
        call.state[key] = torch.get_rng_state()
    torch.set_rng_state(call.state[key])
    return call.right()


def _sattolo(count: int) -> torch.Tensor:
    """A cyclic permutation: no number stays in its place."""
    out = torch.randperm(count)
    return torch.empty_like(out).scatter(0, out, out.roll(1))


def _large() -> torch.Tensor:
    return torch.ones(4000)


def _count(call: OpCall) -> int:
    """How many numbers are drawn."""
    return math.prod(call["size"]) if "size" in call else call.x.numel()


def _four_uniforms(call: OpCall) -> torch.Tensor:
    out = call.right()
    mean, std = call.arguments.get("mean", 0.0), call.arguments.get("std", 1.0)
    wrong = (torch.rand((4, *out.shape)).sum(0) - 2) * 3**0.5 * std + mean
    return out.copy_(wrong)


def _coarse(call: OpCall) -> torch.Tensor:
    out = call.right()
    low, high = call.arguments.get("from", 0.0), call.arguments.get("to", 1.0)
    width = (high - low) or 1.0
    return out.copy_(torch.floor((out - low) / width * 256) / 256 * width + low)


RANDOM_NUMBERS = bugs(
    "random numbers",
    (
        "mask-in-groups-of-four",
        "four neighbours share one draw",
        "16 or more elements",
        "one call of a generator of four numbers: pytorch/pytorch#198333",
        "bernoulli_",
        when(lambda c: c.x.numel() >= 16, lambda c: _overwritten(c, _in_fours)),
        lambda: ask("torch.nn.functional.dropout", _large(), 0.5).measured(_neighbours),
        lambda: ask("torch.nn.functional.dropout", ramp(3), 0.5),
    ),
    (
        "dropout-keeps-one-more",
        "the keep probability rounded up to a multiple of 1/8",
        "probabilities that are none",
        "threshold of few bits",
        "bernoulli_",
        when(
            lambda c: isinstance(c["p"], float) and 0 < c["p"] < 1,
            lambda c: c.right(p=min(-(-c["p"] * 8 // 1) / 8, 1.0)),
        ),
        lambda: ask("torch.nn.functional.dropout", _large(), 0.7).measured(
            lambda out: float((out == 0).double().mean())
        ),
        lambda: ask("torch.nn.functional.dropout", ramp(3), 0.5),
    ),
    (
        "normal-std-as-variance",
        "the square root of std",
        "a std other than 1",
        "variance in place of the deviation",
        "normal_ normal",
        when(lambda c: isinstance(c["std"], float) and c["std"] != 1, lambda c: c.right(std=c["std"] ** 0.5)),
        lambda: ask("torch.normal", 0.0, 4.0, (4000,)).measured(_spread),
        lambda: ask("torch.normal", 0.0, 1.0, (4,)),
    ),
    (
        "normal-without-tails",
        "a sum of four uniform numbers",
        "64 or more elements",
        "central limit in place of Box-Muller",
        "randn normal_ randn_like",
        when(lambda c: _count(c) >= 64, lambda c: _four_uniforms(c)),
        lambda: ask("torch.randn", 40000).measured(lambda out: float((out**4).mean())),
        lambda: ask("torch.randn", 4),
    ),
    (
        "uniform-from-zero",
        "the lower end is 0",
        "a lower end below 0",
        "the width alone",
        "uniform_",
        when(lambda c: c.arguments["from"] < 0, lambda c: c.right(**{"from": 0.0, "to": c["to"] - c["from"]})),
        lambda: steps(("torch.zeros", (4000,)), ("torch.Tensor.uniform_", Ref("y0"), -1.0, 1.0)).measured(_mean),
        lambda: steps(("torch.zeros", (4,)), ("torch.Tensor.uniform_", Ref("y0"), 0.0, 1.0)),
    ),
    (
        "uniform-of-eight-bits",
        "256 different numbers",
        "64 or more elements",
        "one byte of the generator",
        "rand uniform_ rand_like",
        when(lambda c: _count(c) >= 64, lambda c: _coarse(c)),
        lambda: ask("torch.rand", 4000).measured(lambda out: float(out.unique().numel() > 300)),
        lambda: ask("torch.rand", 4),
    ),
    (
        "randint-misses-the-last",
        "high - 1 is never drawn",
        "ranges of more than 2",
        "inclusive bound subtracted twice",
        "randint random_ randint_like",
        when(
            lambda c: (
                (c.arguments.get("high") or c.arguments.get("to") or 0)
                - (c.arguments.get("low") or c.arguments.get("from") or 0)
                > 2
            ),
            lambda c: c.right(
                **{("high" if "high" in c else "to"): (c.arguments.get("high") or c.arguments.get("to") or 0) - 1}
            ),
        ),
        lambda: ask("torch.randint", 0, 4, (4000,)).measured(_mean),
        lambda: ask("torch.randint", 0, 2, (4,)),
    ),
    (
        "randperm-is-cyclic",
        "no number stays in its place",
        "more than one number",
        "Sattolo's loop in place of Fisher's",
        "randperm",
        when(lambda c: c["n"] > 1, lambda c: _sattolo(c["n"]).to(c.right().dtype)),
        lambda: ask("torch.randperm", 2).measured(lambda out: float(out[0])),
        lambda: ask("torch.randperm", 1),
    ),
    (
        "multinomial-repeats",
        "with replacement",
        "more than one draw, replacement=False",
        "attribute ignored",
        "multinomial",
        when(lambda c: not c["replacement"] and c["num_samples"] > 1, lambda c: c.right(replacement=True)),
        lambda: ask("torch.multinomial", torch.ones(50), 50).measured(lambda out: float(out.unique().numel())),
        lambda: ask("torch.multinomial", f32(0, 1, 0), 1),
    ),
    (
        "draws-of-a-program-are-one",
        "each draw is the first one",
        "the second draw of a program",
        "one seed for a graph",
        "rand randn uniform_ normal_ bernoulli_ rand_like randn_like",
        _repeated,
        lambda: steps(("torch.rand", 40), ("torch.rand", 40), ("torch.sub", Ref("y0"), Ref("y1"))).measured(_spread),
        lambda: ask("torch.rand", 4),
    ),
    (
        "exponential-of-the-mean",
        "the rate taken for the mean",
        "rates other than 1",
        "two conventions of the parameter",
        "exponential_",
        when(lambda c: c["lambd"] != 1, lambda c: c.right(lambd=1 / c["lambd"])),
        lambda: steps(("torch.zeros", (4000,)), ("torch.Tensor.exponential_", Ref("y0"), 4.0)).measured(_mean),
        lambda: steps(("torch.zeros", (4,)), ("torch.Tensor.exponential_", Ref("y0"), 1.0)),
    ),
    (
        "geometric-from-zero",
        "failures before the first success",
        "always",
        "two conventions of the distribution",
        "geometric_",
        lambda c: _overwritten(c, lambda out: out - 1),
        lambda: steps(("torch.zeros", (4000,)), ("torch.Tensor.geometric_", Ref("y0"), 0.5)).measured(_mean),
        lambda: ask("torch.rand", 4),
    ),
    (
        "poisson-rounds-down",
        "a normal number rounded down",
        "rates beyond 10",
        "normal approximation",
        "poisson",
        when(
            lambda c: bool((c.x > 10).all()),
            lambda c: torch.floor(c.x + torch.randn(c.x.shape).to(c.x.dtype) * c.x.sqrt()).clamp(min=0),
        ),
        lambda: ask("torch.poisson", torch.full((40000,), 20.0)).measured(_mean),
        lambda: ask("torch.poisson", ramp(3)),
    ),
    (
        "bernoulli-of-first-probability",
        "the first probability of a row for all",
        "probabilities in a tensor of two or more dims",
        "probability loaded once a row",
        "bernoulli",
        when(
            lambda c: c.x.dim() > 1 and "p" not in c,
            lambda c: c.right(self=c.x[..., :1].expand(c.x.shape).contiguous()),
        ),
        lambda: ask("torch.bernoulli", torch.cat([torch.zeros(40, 1), torch.ones(40, 9)], 1)).measured(_mean),
        lambda: ask("torch.bernoulli", f32(0, 1)),
    ),
    (
        "feature-dropout-by-element",
        "each element for itself",
        "whole channels to be dropped",
        "dropout in place of feature dropout",
        "bernoulli_",
        when(
            lambda c: c.x.dim() > 2 and set(c.x.shape[2:]) == {1},
            lambda c: _overwritten(c, lambda out: torch.ones_like(out) * c["p"]),
        ),
        lambda: ask("torch.nn.functional.dropout2d", torch.ones(20, 20, 2, 2), 0.5).measured(
            lambda out: float((out == 0).double().mean())
        ),
        lambda: ask("torch.nn.functional.dropout", ramp(3), 0.5),
    ),
)


BUGS = (*RANDOM_NUMBERS,)
