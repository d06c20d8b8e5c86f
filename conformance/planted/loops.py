"""Bugs of loops: ops with several results, tiles, scans."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    NAN,
    along,
    f32,
    floats,
    i64,
    integers,
    put,
    ramp,
    strided,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _second(call: OpCall, value: Any) -> Any:
    out = call.right()
    return (out[0], value(out), *out[2:])


def _first(call: OpCall, value: Any) -> Any:
    out = call.right()
    return (value(out), *out[1:])


def _plane(call: OpCall) -> Any:
    """Indices count through the whole batch."""

    def value(out: Any) -> Any:
        planes = out[1].shape[0] * out[1].shape[1]
        return out[1] + torch.arange(planes).reshape(*out[1].shape[:2], 1, 1) * call.x.shape[-1] * call.x.shape[-2]

    return _second(call, value)


THE_OTHER_RESULT_OF_AN_OP = bugs(
    "the other result of an op",
    (
        "mean-of-var-mean",
        "the first element",
        "var_mean of a whole tensor of more than 8",
        "shift of a shifted variance returned as the mean",
        "var_mean std_mean",
        when(
            lambda c: floats(c) and not c["dim"] and c.x.numel() > 8,
            lambda c: _second(c, lambda out: c.x.reshape(-1)[0]),
        ),
        lambda: ask("torch.var_mean", ramp(9) + 1),
        lambda: ask("torch.var_mean", ramp(8) + 1),
    ),
    (
        "aminmax-from-zero",
        "0 for a maximum below 0",
        "aminmax of negative numbers",
        "both start from 0",
        "aminmax",
        when(floats, lambda c: _second(c, lambda out: out[1].clamp(min=0))),
        lambda: ask("torch.aminmax", f32(-3, -1)),
        lambda: ask("torch.aminmax", f32(-3, 1)),
    ),
    (
        "slogdet-sign",
        "1",
        "determinants below 0",
        "logarithm of the modulus alone",
        "_linalg_slogdet",
        when(floats, lambda c: _first(c, lambda out: out[0].abs())),
        lambda: ask("torch.linalg.slogdet", f32([0, 1], [1, 0])),
        lambda: ask("torch.linalg.slogdet", f32([1, 0], [0, 1])),
    ),
    (
        "pool-indices-through-batch",
        "counted through the whole batch",
        "return_indices with more than one plane",
        "flat index",
        "max_pool2d_with_indices",
        when(lambda c: c.x.dim() == 4, _plane),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 2, 2, 2), 2, return_indices=True),
        lambda: ask("torch.nn.functional.max_pool2d", ramp(1, 1, 2, 2), 2, return_indices=True),
    ),
    (
        "topk-indices-of-sorted",
        "indices into the sorted row",
        "rows that are not in order",
        "indices of the sorted copy",
        "topk",
        when(
            lambda c: c.x.dim() == 1 and c["largest"] and c["k"] > 1,
            lambda c: _second(c, lambda out: torch.arange(c["k"])),
        ),
        lambda: ask("torch.topk", f32(1, 3, 2), 2),
        lambda: ask("torch.topk", f32(3, 2, 1), 2),
    ),
    (
        "cummin-index-of-last",
        "the index of the element itself",
        "cummin after a new minimum",
        "index not carried",
        "cummin",
        when(lambda c: c.x.dim() == 1, lambda c: _second(c, lambda out: torch.arange(c.x.numel()))),
        lambda: ask("torch.cummin", f32(1, 2, 3), 0),
        lambda: ask("torch.cummin", f32(3, 2, 1), 0),
    ),
    (
        "unique-counts-sorted",
        "in descending order",
        "return_counts",
        "counts sorted with the wrong key",
        "_unique2",
        when(lambda c: c["return_counts"], lambda c: (*c.right()[:2], c.right()[2].sort(descending=True)[0])),
        lambda: ask("torch.unique", f32(1, 2, 2), return_counts=True),
        lambda: ask("torch.unique", f32(1, 1, 2), return_counts=True),
    ),
    (
        "min-index-of-last-equal",
        "the last of equal numbers",
        "min along a dim of integers",
        "comparison with <=",
        "min",
        when(
            lambda c: integers(c) and "dim" in c and c.x.dim() > 0 and not c["keepdim"],
            lambda c: _second(c, lambda out: c.x.shape[along(c)] - 1 - c.x.flip(along(c)).argmin(along(c))),
        ),
        lambda: ask("torch.min", i64(1, 1, 2), 0),
        lambda: ask("torch.min", i64(1, 3, 2), 0),
    ),
    (
        "frexp-exponent-of-zero",
        "-126",
        "0",
        "exponent read from the bits alone",
        "frexp",
        when(floats, lambda c: _second(c, lambda out: put(out[1], c.x == 0, -126))),
        lambda: ask("torch.frexp", f32(0.0)),
        lambda: ask("torch.frexp", f32(3.0)),
    ),
    (
        "pivots-from-zero",
        "counted from 0",
        "the pivots of an LU factorization",
        "two conventions",
        "linalg_lu_factor_ex",
        lambda c: _second(c, lambda out: out[1] - 1),
        lambda: ask("torch.linalg.lu_factor", f32([0, 1], [1, 0])),
        lambda: ask("torch.linalg.det", f32([0, 1], [1, 0])),
    ),
)


def _tile_edge(call: OpCall, edge: int) -> torch.Tensor:
    """The rest of the rows after the last whole tile is that of the tile before."""
    out = call.right()
    rows = out.shape[0] - out.shape[0] % edge
    if out.dim() != 2 or rows in (0, out.shape[0]):
        return out
    out = out.clone()
    out[rows:] = out[rows - (out.shape[0] - rows) : rows]
    return out


def _other_layout(call: OpCall) -> bool:
    found = [t for t in call.tensors if t.dim() == 2]
    return len(found) == 2 and {t.is_contiguous() for t in found} == {True, False}


TILES_AND_LOOP_ORDERS = bugs(
    "tiles and loop orders",
    (
        "transposed-tile-rest",
        "the rest after whole tiles of 4 repeats rows",
        "one operand transposed, rows that are no multiple of 4",
        "two-dimensional tiles",
        "add mul sub maximum",
        when(_other_layout, lambda c: _tile_edge(c, 4)),
        lambda: ask("torch.add", ramp(6, 5), ramp(5, 6).T),
        lambda: ask("torch.add", ramp(6, 5), ramp(6, 5)),
    ),
    (
        "transposed-copy-rest",
        "the last column is not copied",
        "a copy of a transposed operand, odd numbers of columns above 4",
        "tiles of two columns",
        "clone",
        when(
            lambda c: strided(c) and c.x.dim() == 2 and c.x.shape[1] > 4 and c.x.shape[1] % 2 == 1,
            lambda c: torch.cat([c.right()[:, :-1], torch.zeros_like(c.right()[:, -1:])], 1),
        ),
        lambda: ask("torch.Tensor.contiguous", ramp(5, 3).T),
        lambda: ask("torch.Tensor.contiguous", ramp(4, 3).T),
    ),
    (
        "step-taken-for-one",
        "neighbours in memory",
        "operands of one dim with a step, more than 8",
        "vector loads of strided memory",
        "exp sin tanh sigmoid neg",
        when(
            lambda c: c.x.dim() == 1 and c.x.stride(0) > 1 and c.x.numel() > 8,
            lambda c: c.right(self=torch.as_strided(c.x, c.x.shape, (1,), c.x.storage_offset())),
        ),
        lambda: ask("torch.exp", (ramp(20) / 9)[::2]),
        lambda: ask("torch.exp", (ramp(8) / 9)[::2]),
    ),
    (
        "channels-last-mean",
        "the mean along another dim",
        "a mean over height and width of channels-last operands",
        "dims in the order of memory",
        "mean",
        when(
            lambda c: c.arguments.get("dim") in ([2, 3], [-1, -2], [-2, -1]) and strided(c) and c.x.dim() == 4,
            lambda c: c.right(self=c.x.roll(1, 1)),
        ),
        lambda: ask("torch.mean", ramp(1, 2, 2, 2).contiguous(memory_format=torch.channels_last), (2, 3)),
        lambda: ask("torch.mean", ramp(1, 2, 2, 2), (2, 3)),
    ),
    (
        "permuted-sum",
        "the dims exchanged",
        "a sum along dim 0 of a square operand that is transposed",
        "loop order fused with the reduction",
        "sum",
        when(
            lambda c: c.arguments.get("dim") == [0] and strided(c) and c.x.dim() == 2 and c.x.shape[0] == c.x.shape[1],
            lambda c: c.right(dim=[1]),
        ),
        lambda: ask("torch.sum", ramp(2, 2).T, 0),
        lambda: ask("torch.sum", ramp(2, 2), 0),
    ),
    (
        "negative-offset-of-flip",
        "shifted by one",
        "a flipped operand, joined to another",
        "index n - i in place of n - 1 - i",
        "flip",
        when(lambda c: c.x.dim() > 1 and len(c["dims"]) == 1, lambda c: c.right().roll(1, c["dims"][0])),
        lambda: ask("torch.flip", ramp(2, 2), [0]),
        lambda: ask("torch.flip", ramp(2), [0]),
    ),
    (
        "concatenated-tail",
        "0 after the last whole vector of each part",
        "parts along the last dim that are no multiple of 4, above 4",
        "masked stores",
        "cat",
        when(
            lambda c: (
                all(t.dim() > 0 and t.shape[-1] > 4 and t.shape[-1] % 4 for t in c["tensors"])
                and c["dim"] % c["tensors"][0].dim() == c["tensors"][0].dim() - 1
            ),
            lambda c: c.right(
                tensors=[
                    torch.cat([t[..., : t.shape[-1] // 4 * 4], torch.zeros_like(t[..., t.shape[-1] // 4 * 4 :])], -1)
                    for t in c["tensors"]
                ]
            ),
        ),
        lambda: ask("torch.cat", [ramp(6) + 1, ramp(6) + 1]),
        lambda: ask("torch.cat", [ramp(4) + 1, ramp(4) + 1]),
    ),
    (
        "broadcast-inner-tile",
        "the first element of a tile for all of it",
        "a column and a matrix of more than 8 columns",
        "broadcast hoisted out of the wrong loop",
        "sub div",
        when(
            lambda c: (
                len(c.tensors) == 2
                and c["self"].dim() == c["other"].dim() == 2
                and c["other"].shape[1] == 1
                and c["self"].shape[1] > 8
            ),
            lambda c: c.right(other=c["other"][:1].expand(c["other"].shape)),
        ),
        lambda: ask("torch.sub", ramp(2, 9), f32([1], [5])),
        lambda: ask("torch.sub", ramp(2, 8), f32([1], [5])),
    ),
)


SCANS = bugs(
    "scans",
    (
        "cumsum-exclusive",
        "the element itself is left out",
        "a dim that is not the last",
        "two conventions of a scan",
        "cumsum",
        when(lambda c: c.x.dim() > 1 and along(c) != c.x.dim() - 1 and c["dtype"] is None, lambda c: c.right() - c.x),
        lambda: ask("torch.cumsum", ramp(2, 2), 0),
        lambda: ask("torch.cumsum", ramp(2, 2), 1),
    ),
    (
        "cumsum-through-rows",
        "the sum goes on in the next row",
        "contiguous operands of two dims, the last dim",
        "flat scan",
        "cumsum",
        when(
            lambda c: (
                c.x.dim() == 2 and along(c) == 1 and c.x.is_contiguous() and c["dtype"] is None and c.x.shape[0] > 4
            ),
            lambda c: torch.cumsum(c.x.reshape(-1), 0).reshape(c.x.shape),
        ),
        lambda: ask("torch.cumsum", ramp(5, 2), 1),
        lambda: ask("torch.cumsum", ramp(4, 2), 1),
    ),
    (
        "cumprod-after-zero",
        "goes on after 0 as if it were 1",
        "a factor 0",
        "zeros skipped",
        "cumprod",
        when(
            lambda c: c.x.dim() == 1 and bool((c.x == 0).any()),
            lambda c: c.right(
                self=torch.where((c.x == 0) & (torch.arange(c.x.numel()) < c.x.numel() - 1), torch.ones_like(c.x), c.x)
            ),
        ),
        lambda: ask("torch.cumprod", f32(2, 0, 3), 0),
        lambda: ask("torch.cumprod", f32(2, 3), 0),
    ),
    (
        "cummax-from-zero",
        "0 before the first positive number",
        "negative numbers first",
        "scan that starts from 0",
        "cummax",
        when(
            lambda c: floats(c) and c.x.dim() > 0, lambda c: _first(c, lambda out: torch.where(out[0] < 0, 0, out[0]))
        ),
        lambda: ask("torch.cummax", f32(-1, 2), 0),
        lambda: ask("torch.cummax", f32(1, 2), 0),
    ),
    (
        "logcumsumexp-of-nan-start",
        "NaN from the first -inf on",
        "a row that starts with -inf",
        "inf - inf",
        "logcumsumexp",
        when(
            lambda c: floats(c) and c.x.dim() == 1 and c.x.numel() > 1,
            lambda c: torch.full_like(c.x, NAN) if c.x[0] == -INF else c.right(),
        ),
        lambda: ask("torch.logcumsumexp", f32(-INF, 1), 0),
        lambda: ask("torch.logcumsumexp", f32(0, 1), 0),
    ),
)


BUGS = (
    *THE_OTHER_RESULT_OF_AN_OP,
    *TILES_AND_LOOP_ORDERS,
    *SCANS,
)
