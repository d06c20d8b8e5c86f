"""Bugs that depend on how large something is: vector tails, blocks, counters of 16 bits, sizes of 1 and 0."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    along,
    at_least,
    floats,
    i8,
    mixed,
    put,
    ramp,
    single,
    tail,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _full(call: OpCall) -> bool:
    """Whether it is a reduction to one number."""
    return not call.arguments.get("dim") and call.x.dim() > 0


def _without_last(call: OpCall, count: int) -> torch.Tensor:
    flat = call.x.reshape(-1)
    return call.right(self=flat[: flat.numel() - count])


def _row_tail(call: OpCall) -> torch.Tensor:
    size = call.x.shape[-1]
    return call.right(self=call.x[..., : size - size % 8])


def _norm_without_tail(call: OpCall) -> Any:
    _, mean, _ = call.right()
    size = call.x.shape[-1]
    spread = call.x[..., : size - size % 8].var(-1, keepdim=True, correction=0)
    wrong = (call.x - mean) * torch.rsqrt(spread + call["eps"])
    wrong = wrong if call["weight"] is None else wrong * call["weight"]
    return wrong if call["bias"] is None else wrong + call["bias"], mean, torch.rsqrt(spread + call["eps"])


def _blocked(bias: torch.Tensor) -> torch.Tensor:
    out = bias.clone()
    out[bias.numel() - bias.numel() % 4 :] = 0
    return out


TAILS_OF_VECTOR_LOOPS = bugs(
    "tails of vector loops",
    (
        "add-tail-without-alpha",
        "alpha is 1",
        "the elements after the last whole vector of more than 8",
        "scalar epilogue of its own",
        "add sub",
        when(
            lambda c: floats(c) and c["alpha"] != 1 and c.right().numel() > 8,
            lambda c: tail(c.right(), c.right(alpha=1)),
        ),
        lambda: ask("torch.add", ramp(11), ramp(11), alpha=2.0),
        lambda: ask("torch.add", ramp(8), ramp(8), alpha=2.0),
    ),
    (
        "mul-tail-not-written",
        "the first operand",
        "the elements after the last whole vector of more than 16",
        "epilogue that copies",
        "mul",
        when(lambda c: floats(c) and c.right().numel() > 16, lambda c: tail(c.right(), c.x)),
        lambda: ask("torch.mul", ramp(19), ramp(19)),
        lambda: ask("torch.mul", ramp(16), ramp(16)),
    ),
    (
        "sum-drops-tail",
        "the last n % 16 elements are left out",
        "4,096 or more elements",
        "no epilogue in the blocked loop",
        "sum",
        when(
            lambda c: _full(c) and c.x.numel() >= 4096 and c.x.numel() % 16 > 0,
            lambda c: _without_last(c, c.x.numel() % 16),
        ),
        lambda: ask("torch.sum", torch.ones(4101)),
        lambda: ask("torch.sum", torch.ones(4095)),
    ),
    (
        "row-sum-drops-tail",
        "the last n % 8 of each row",
        "rows of more than 32, of a contiguous operand",
        "no epilogue",
        "sum mean amax",
        when(
            lambda c: (
                floats(c)
                and c.arguments.get("dim")
                and len(c["dim"]) == 1
                and along(c) == c.x.dim() - 1
                and c.x.is_contiguous()
                and c.x.shape[-1] > 32
                and c.x.shape[-1] % 8 > 0
            ),
            lambda c: _row_tail(c),
        ),
        lambda: ask("torch.sum", ramp(2, 37), 1),
        lambda: ask("torch.sum", ramp(2, 31), 1),
    ),
    (
        "layer-norm-tail",
        "the variance leaves the last n % 8 out",
        "rows of more than 8",
        "vector reduction without an epilogue",
        "native_layer_norm",
        when(
            lambda c: single(c) and len(c["normalized_shape"]) == 1 and c.x.shape[-1] > 8 and c.x.shape[-1] % 8 > 0,
            lambda c: _norm_without_tail(c),
        ),
        lambda: ask("torch.nn.functional.layer_norm", mixed(2, 11), [11]),
        lambda: ask("torch.nn.functional.layer_norm", mixed(2, 8), [8]),
    ),
    (
        "small-integer-minimum",
        "0: the zeros of lanes that hold nothing",
        "int8 and uint8, 16 or more positive numbers",
        "inactive lanes in a reduction: pytorch/pytorch#191499",
        "amin min argmin",
        when(
            lambda c: (
                c.x.dtype in (torch.int8, torch.uint8)
                and c.x.numel() >= 16
                and "other" not in c
                and c.name != "argmin"
                and not c.arguments.get("dim")
            ),
            lambda c: c.right().clamp(max=0),
        ),
        lambda: ask("torch.min", i8(*range(5, 25))),
        lambda: ask("torch.min", i8(*range(5, 15))),
    ),
    (
        "negative-maximum-of-mask",
        "the largest subnormal below 0: the value of masked lanes",
        "rows of 9 to 15 negative numbers",
        "neutral element of a masked maximum: llvm/llvm-project#222275",
        "amax",
        when(
            lambda c: single(c) and c["dim"] and 9 <= c.x.shape[c["dim"][0]] <= 15,
            lambda c: put(c.right(), c.right() < 0, -1e-45),
        ),
        lambda: ask("torch.amax", -1 - ramp(2, 9), 1),
        lambda: ask("torch.amax", -1 - ramp(2, 8), 1),
    ),
    (
        "where-tail-inverted",
        "the other branch",
        "the elements after the last vector of more than 32",
        "epilogue with the mask inverted",
        "where",
        when(
            lambda c: "other" in c and c.right().numel() > 32,
            lambda c: tail(c.right(), torch.where(c["condition"], c["other"], c["self"])),
        ),
        lambda: ask("torch.where", ramp(35) > 3, ramp(35), -ramp(35)),
        lambda: ask("torch.where", ramp(32) > 3, ramp(32), -ramp(32)),
    ),
    (
        "conv-last-channels-without-bias",
        "no bias",
        "output channels after the last 4, of more than 4",
        "channel blocks of 4",
        "convolution",
        when(
            lambda c: (
                c["bias"] is not None
                and not c["transposed"]
                and c["weight"].shape[0] > 4
                and c["weight"].shape[0] % 4 > 0
            ),
            lambda c: c.right(bias=_blocked(c["bias"])),
        ),
        lambda: ask("torch.nn.functional.conv1d", mixed(1, 2, 5), mixed(6, 2, 3), mixed(6)),
        lambda: ask("torch.nn.functional.conv1d", mixed(1, 2, 5), mixed(4, 2, 3), mixed(4)),
    ),
)


def _carry_lost(call: OpCall, block: int) -> torch.Tensor:
    dim = along(call)
    return torch.cat([call.right(self=part) for part in call.x.split(block, dim)], dim)


def _wrapped(index: torch.Tensor) -> torch.Tensor:
    return torch.where(index > 32767, index - 32768, index)


def _index_name(call: OpCall) -> str:
    return "indices" if call.name == "embedding" else "index"


def _inner(call: OpCall) -> torch.Tensor:
    return call["mat1"] if "mat1" in call else call["self"]


def _cut_depth(call: OpCall) -> torch.Tensor:
    left, right = ("mat1", "mat2") if "mat1" in call else ("self", "mat2")
    keep = call[left].shape[1] - call[left].shape[1] % 64
    return call.right(**{left: call[left][:, :keep], right: call[right][:keep]})


LARGE_SIZES = bugs(
    "large sizes",
    (
        "sum-drops-a-split",
        "the element at the border of two threads",
        "more than 32,768 elements",
        "ranges of a parallel reduction",
        "sum",
        when(
            lambda c: _full(c) and c.x.numel() > 32768,
            lambda c: c.right(
                self=torch.cat([c.x.reshape(-1)[: c.x.numel() // 2], c.x.reshape(-1)[c.x.numel() // 2 + 1 :]])
            ),
        ),
        lambda: ask("torch.sum", ramp(40000)),
        lambda: ask("torch.sum", ramp(100)),
    ),
    (
        "argmax-of-16-bits",
        "the index modulo 65,536",
        "more than 65,536 elements",
        "index of 16 bits",
        "argmax argmin",
        when(at_least(65537), lambda c: c.right() % 65536),
        lambda: ask("torch.argmax", ramp(70000)),
        lambda: ask("torch.argmax", ramp(100)),
    ),
    (
        "cumsum-carry-lost",
        "each block starts again",
        "more than 4,096 in the row",
        "carry between blocks of a scan",
        "cumsum",
        when(lambda c: c.x.dim() > 0 and c.x.shape[along(c)] > 4096, lambda c: _carry_lost(c, 4096)),
        lambda: ask("torch.cumsum", torch.ones(5000), 0),
        lambda: ask("torch.cumsum", torch.ones(50), 0),
    ),
    (
        "softmax-past-1024",
        "the sum stops at 1,024",
        "rows of more than 1,024",
        "one block of threads a row",
        "_softmax",
        when(
            lambda c: floats(c) and c.x.dim() > 0 and c.x.shape[along(c)] > 1024,
            lambda c: (
                torch.exp(c.x - c.x.amax(along(c), keepdim=True))
                / torch.exp(c.x - c.x.amax(along(c), keepdim=True))
                .narrow(along(c), 0, 1024)
                .sum(along(c), keepdim=True)
            ),
        ),
        lambda: ask("torch.softmax", mixed(2000), 0),
        lambda: ask("torch.softmax", mixed(20), 0),
    ),
    (
        "sort-last-of-large-rows",
        "the last two stay exchanged",
        "rows of more than 256 whose size is no power of two",
        "padding of a bitonic network",
        "sort",
        when(
            lambda c: c.x.dim() == 1 and c.x.numel() > 256 and bin(c.x.numel()).count("1") > 1,
            lambda c: tuple(torch.cat([o[:-2], o[-2:].flip(0)]) for o in c.right()),
        ),
        lambda: ask("torch.sort", mixed(300)),
        lambda: ask("torch.sort", mixed(256)),
    ),
    (
        "mean-count-of-16-bits",
        "the sum over n modulo 65,536",
        "more than 65,536 elements",
        "count of 16 bits",
        "mean",
        when(
            lambda c: floats(c) and _full(c) and c.x.numel() > 65536,
            lambda c: c.right() * c.x.numel() / (c.x.numel() % 65536),
        ),
        lambda: ask("torch.mean", torch.ones(70000)),
        lambda: ask("torch.mean", torch.ones(70)),
    ),
    (
        "gather-index-of-16-bits",
        "rows from 32,768 on are others",
        "indices beyond 32,767",
        "index of 16 bits",
        "index_select gather embedding",
        when(
            lambda c: bool((c[_index_name(c)] > 32767).any()),
            lambda c: c.right(**{_index_name(c): _wrapped(c[_index_name(c)])}),
        ),
        lambda: ask("torch.index_select", ramp(40000), 0, torch.tensor([39999])),
        lambda: ask("torch.index_select", ramp(400), 0, torch.tensor([399])),
    ),
    (
        "bmm-batch-beyond-8",
        "the product of the batch modulo 8",
        "more than 8 in the batch",
        "batch index of 3 bits",
        "bmm",
        when(lambda c: c.x.shape[0] > 8, lambda c: c.right()[torch.arange(c.x.shape[0]) % 8]),
        lambda: ask("torch.bmm", mixed(9, 2, 2), mixed(9, 2, 2)),
        lambda: ask("torch.bmm", mixed(8, 2, 2), mixed(8, 2, 2)),
    ),
    (
        "mm-depth-beyond-512",
        "the rest of the depth is left out",
        "inner sizes that are no multiple of 64, beyond 512",
        "blocked product without its rest",
        "mm addmm",
        when(lambda c: _inner(c).shape[1] > 512 and _inner(c).shape[1] % 64 > 0, lambda c: _cut_depth(c)),
        lambda: ask("torch.mm", torch.ones(2, 520), torch.ones(520, 2)),
        lambda: ask("torch.mm", torch.ones(2, 52), torch.ones(52, 2)),
    ),
    (
        "exp-beyond-4096",
        "the last element is not written: 0",
        "contiguous operands of more than 4,096 elements",
        "grid one block short",
        "exp",
        when(
            lambda c: c.x.numel() > 4096,
            lambda c: put(c.right(), torch.arange(c.x.numel()).reshape(c.x.shape) == c.x.numel() - 1, 0),
        ),
        lambda: ask("torch.exp", mixed(5000)),
        lambda: ask("torch.exp", mixed(50)),
    ),
)


SIZES_OF_1_AND_0 = bugs(
    "sizes of 1 and 0",
    (
        "var-of-one",
        "0 in place of NaN",
        "no more elements than the correction",
        "divisor clamped at 1",
        "var std",
        when(lambda c: floats(c) and not c["dim"] and c.x.numel() == 1, lambda c: torch.nan_to_num(c.right())),
        lambda: ask("torch.var", ramp(1)),
        lambda: ask("torch.var", ramp(3)),
    ),
    (
        "linspace-of-one",
        "the end in place of the start",
        "one step",
        "index over steps - 1 without a guard",
        "linspace",
        when(lambda c: c["steps"] == 1, lambda c: c.right(start=c["end"])),
        lambda: ask("torch.linspace", 1.0, 5.0, 1),
        lambda: ask("torch.linspace", 1.0, 5.0, 3),
    ),
    (
        "prod-of-nothing",
        "0 in place of 1",
        "no elements",
        "buffer of zeros for an empty reduction",
        "prod",
        when(lambda c: c.x.numel() == 0, lambda c: torch.zeros_like(c.right())),
        lambda: ask("torch.prod", ramp(0)),
        lambda: ask("torch.prod", ramp(3)),
    ),
    (
        "mean-of-nothing",
        "0 in place of NaN",
        "no elements",
        "division skipped where the count is 0",
        "mean",
        when(lambda c: floats(c) and c.x.numel() == 0, lambda c: torch.zeros_like(c.right())),
        lambda: ask("torch.mean", ramp(0)),
        lambda: ask("torch.mean", ramp(3)),
    ),
    (
        "all-of-nothing",
        "false in place of true",
        "no elements",
        "buffer of zeros for an empty reduction",
        "all",
        when(lambda c: c.x.numel() == 0, lambda c: torch.zeros_like(c.right())),
        lambda: ask("torch.all", torch.zeros(0, dtype=torch.bool)),
        lambda: ask("torch.all", torch.ones(2, dtype=torch.bool)),
    ),
    (
        "one-row-product-as-transposed",
        "the right matrix is read row by row",
        "one row on the left and a square matrix on the right",
        "vector path that ignores the order",
        "mm",
        when(
            lambda c: c["self"].shape[0] == 1 and c["mat2"].shape[0] == c["mat2"].shape[1],
            lambda c: c.right(mat2=c["mat2"].T),
        ),
        lambda: ask("torch.mm", ramp(1, 2), ramp(2, 2)),
        lambda: ask("torch.mm", ramp(2, 2), ramp(2, 2)),
    ),
    (
        "batch-norm-of-one",
        "the running statistics are not used",
        "evaluation of one sample",
        "training taken from the size of the batch",
        "native_batch_norm",
        when(
            lambda c: not c["training"] and c.x.shape[0] == 1 and c.x.dim() > 2,
            lambda c: c.right(training=True, running_mean=None, running_var=None),
        ),
        lambda: ask("torch.nn.functional.batch_norm", mixed(1, 2, 3), torch.zeros(2), torch.ones(2)),
        lambda: ask("torch.nn.functional.batch_norm", mixed(2, 2, 3), torch.zeros(2), torch.ones(2)),
    ),
    (
        "addmm-column-as-row",
        "a column is added as a row",
        "a bias of n by 1 and an n by n result",
        "broadcast by the number of elements",
        "addmm",
        when(
            lambda c: (
                c["self"].dim() == 2
                and c["self"].shape[1] == 1
                and c["mat1"].shape[0] == c["mat2"].shape[1] == c["self"].shape[0]
            ),
            lambda c: c.right(self=c["self"].T),
        ),
        lambda: ask("torch.addmm", ramp(2, 1), mixed(2, 3), mixed(3, 2)),
        lambda: ask("torch.addmm", ramp(2), mixed(2, 3), mixed(3, 2)),
    ),
)


BUGS = (
    *TAILS_OF_VECTOR_LOOPS,
    *LARGE_SIZES,
    *SIZES_OF_1_AND_0,
)
