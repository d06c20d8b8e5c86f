"""Bugs of dims: reductions over several, a middle or a negative one, shapes and moves."""

from __future__ import annotations

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    along,
    argument,
    f32,
    mixed,
    ramp,
    strided,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _whole(call: OpCall) -> bool:
    return bool(call.arguments.get("dim")) and isinstance(call["dim"], list | tuple)


def _shifted(call: OpCall) -> list[int]:
    rank = call.x.dim()
    return [d if d >= 0 else (d - 1) % rank for d in call["dim"]]


DIMS_OF_REDUCTIONS = bugs(
    "dims of reductions",
    (
        "negative-dims-off-by-one",
        "counted from the last but one",
        "two or more dims, one of them negative, of three",
        "normalized before the dims are dropped",
        "sum mean amax",
        when(
            lambda c: (
                _whole(c) and len(c["dim"]) > 1 and c.x.dim() > 2 and any(d < 0 for d in c["dim"]) and not c["keepdim"]
            ),
            lambda c: c.right(dim=_shifted(c)),
        ),
        lambda: ask("torch.sum", ramp(2, 2, 2), [0, -1]),
        lambda: ask("torch.sum", ramp(2, 2, 2), [0, 2]),
    ),
    (
        "middle-dim-of-strided",
        "the last dim in place of a middle one",
        "square operands that are not contiguous",
        "order of strides taken for the order of dims",
        "sum amax amin mean var",
        when(
            lambda c: (
                _whole(c)
                and len(c["dim"]) == 1
                and c.x.dim() == 3
                and along(c) == 1
                and strided(c)
                and c.x.shape[1] == c.x.shape[2]
            ),
            lambda c: c.right(dim=[2]),
        ),
        lambda: ask("torch.sum", ramp(2, 2, 2).transpose(0, 1), 1),
        lambda: ask("torch.sum", ramp(2, 2, 2), 1),
    ),
    (
        "keepdim-of-several",
        "the dims are dropped",
        "keepdim with several dims",
        "keepdim for the first alone",
        "amax amin sum mean",
        when(lambda c: _whole(c) and len(c["dim"]) > 1 and c["keepdim"], lambda c: c.right(keepdim=False)),
        lambda: ask("torch.amax", ramp(2, 2), [0, 1], keepdim=True),
        lambda: ask("torch.amax", ramp(2, 2), [0], keepdim=True),
    ),
    (
        "no-dims-is-no-reduction",
        "the operand",
        "an empty list of dims",
        "loop over no dims",
        "sum mean amax",
        when(lambda c: c.arguments.get("dim") == [] and c.x.dim() > 0, lambda c: c.x.clone()),
        lambda: ask("torch.sum", ramp(3), []),
        lambda: ask("torch.sum", ramp(3), [0]),
    ),
    (
        "norm-minus-inf-from-zero",
        "0",
        "ord -inf",
        "minimum that starts from 0",
        "linalg_vector_norm",
        when(lambda c: c["ord"] == -INF, lambda c: torch.zeros_like(c.right())),
        lambda: ask("torch.linalg.vector_norm", f32(2, 3), -INF),
        lambda: ask("torch.linalg.vector_norm", f32(2, 3), INF),
    ),
    (
        "norm-of-several-dims",
        "the norm of norms along each",
        "orders other than 0, 1, 2 and infinity, over two dims",
        "one dim at a time",
        "linalg_vector_norm",
        when(
            lambda c: c["ord"] not in (1, 2, INF, -INF, 0) and c["dim"] is not None and len(c["dim"]) == 2,
            lambda c: torch.linalg.vector_norm(
                c.right(dim=[c["dim"][0]], keepdim=True), 2, c["dim"][1], keepdim=True
            ).reshape(c.right().shape),
        ),
        lambda: ask("torch.linalg.vector_norm", ramp(2, 2), 3, (0, 1)),
        lambda: ask("torch.linalg.vector_norm", ramp(2, 2), 3, (0,)),
    ),
    (
        "correction-of-one",
        "1",
        "a correction other than 0 and 1",
        "correction taken for unbiased",
        "var std var_mean std_mean",
        argument(lambda c: c["correction"] not in (None, 0, 1), correction=1),
        lambda: ask("torch.var", ramp(5), correction=2),
        lambda: ask("torch.var", ramp(5), correction=0),
    ),
    (
        "argmin-of-flat-strided",
        "the place in memory",
        "no dim, operands that are not contiguous",
        "index in the order of memory: pytorch/pytorch#183082",
        "argmax argmin",
        when(lambda c: c["dim"] is None and strided(c) and c.x.dim() == 2, lambda c: c.right(self=c.x.T.contiguous())),
        lambda: ask("torch.argmax", f32([0, 9, 1], [2, 3, 4]).T),
        lambda: ask("torch.argmax", f32([0, 9, 1], [2, 3, 4])),
    ),
    (
        "max-indices-of-transposed",
        "0",
        "the maximum along a dim of an operand that is not contiguous and square",
        "index of a fused load: pytorch/pytorch#178964",
        "max min",
        when(
            lambda c: (
                "dim" in c and strided(c) and c.x.dim() == 2 and c.x.shape[0] == c.x.shape[1] and c.x.shape[0] > 4
            ),
            lambda c: (c.right()[0], torch.zeros_like(c.right()[1])),
        ),
        lambda: ask("torch.max", mixed(5, 5).T, 1),
        lambda: ask("torch.max", mixed(5, 5), 1),
    ),
)


def _roll_first(call: OpCall) -> torch.Tensor:
    return call.right(shifts=[call["shifts"][0]] * len(call["shifts"]))


def _depth_first(call: OpCall) -> torch.Tensor:
    *batch, channels, height, width = call.x.shape
    r = call["upscale_factor"]
    blocks = call.x.reshape(-1, r, r, channels // r**2, height, width)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(*batch, channels // r**2, height * r, width * r)


def _wrapping_eye(call: OpCall) -> torch.Tensor:
    out = torch.zeros_like(call.right())
    out.view(-1)[:: call["m"] + 1] = 1
    return out


SHAPES_AND_MOVES = bugs(
    "shapes and moves",
    (
        "roll-by-first-shift",
        "the first shift along every dim",
        "several dims",
        "loop that does not advance",
        "roll",
        when(lambda c: len(c["shifts"]) > 1, _roll_first),
        lambda: ask("torch.roll", ramp(3, 3), (1, 2), (0, 1)),
        lambda: ask("torch.roll", ramp(3, 3), 1, 0),
    ),
    (
        "roll-beyond-size",
        "not rolled",
        "shifts of the size or more",
        "no modulo",
        "roll",
        when(lambda c: len(c["dims"]) == 1 and abs(c["shifts"][0]) > c.x.shape[c["dims"][0]], lambda c: c.x.clone()),
        lambda: ask("torch.roll", ramp(3), 4, 0),
        lambda: ask("torch.roll", ramp(3), 2, 0),
    ),
    (
        "flip-of-strided",
        "the first of the dims alone",
        "several dims, an operand that is not contiguous",
        "flags of the wrong loop order",
        "flip",
        when(lambda c: strided(c) and len(c["dims"]) > 1, lambda c: c.right(dims=c["dims"][:1])),
        lambda: ask("torch.flip", ramp(2, 3).T, [0, 1]),
        lambda: ask("torch.flip", ramp(2, 3), [0, 1]),
    ),
    (
        "repeat-with-leading-dims",
        "new dims are put last",
        "more repeats than dims, an operand of two dims",
        "repeats aligned left",
        "repeat",
        when(
            lambda c: len(c["repeats"]) == 3 and c.x.dim() == 2 and c["repeats"][1:] == [1, 1],
            lambda c: c.x.unsqueeze(0).flip(-1).expand(c["repeats"][0], -1, -1).clone(),
        ),
        lambda: ask("torch.Tensor.repeat", ramp(2, 2), 2, 1, 1),
        lambda: ask("torch.Tensor.repeat", ramp(2, 2), 2, 1),
    ),
    (
        "diagonal-below-taken-above",
        "the diagonal above",
        "negative offsets",
        "absolute value of the offset",
        "diagonal",
        when(lambda c: c["offset"] < 0, lambda c: c.right(offset=-c["offset"])),
        lambda: ask("torch.diagonal", ramp(3, 3), -1),
        lambda: ask("torch.diagonal", ramp(3, 3), 1),
    ),
    (
        "diag-embed-mirrored",
        "above the diagonal",
        "negative offsets",
        "absolute value of the offset",
        "diag_embed",
        when(lambda c: c["offset"] < 0, lambda c: c.right(offset=-c["offset"])),
        lambda: ask("torch.diag_embed", ramp(2) + 1, -1),
        lambda: ask("torch.diag_embed", ramp(2) + 1, 1),
    ),
    (
        "triu-of-wide",
        "clipped to the square part",
        "more columns than rows",
        "loop to the smaller size",
        "triu",
        when(
            lambda c: c.x.dim() == 2 and c.x.shape[1] > c.x.shape[0],
            lambda c: torch.cat([c.right()[:, : c.x.shape[0]], torch.zeros_like(c.x[:, c.x.shape[0] :])], 1),
        ),
        lambda: ask("torch.triu", ramp(2, 3)),
        lambda: ask("torch.triu", ramp(3, 3)),
    ),
    (
        "tril-of-batch",
        "the first matrix for all",
        "batches of more than one",
        "batch stride of 0",
        "tril",
        when(lambda c: c.x.dim() > 2 and c.x.shape[0] > 1, lambda c: c.right()[:1].expand(c.x.shape).clone()),
        lambda: ask("torch.tril", ramp(2, 2, 2)),
        lambda: ask("torch.tril", ramp(2, 2)),
    ),
    (
        "stack-at-negative-dim",
        "one dim too early",
        "negative dims",
        "dim counted in the operands' rank",
        "stack",
        when(
            lambda c: c["dim"] < 0 and c["tensors"][0].dim() > 0,
            lambda c: c.right(dim=c["dim"] % c["tensors"][0].dim()),
        ),
        lambda: ask("torch.stack", [ramp(2), ramp(2) + 5], -1),
        lambda: ask("torch.stack", [ramp(2), ramp(2) + 5], 1),
    ),
    (
        "rot90-backwards",
        "forwards",
        "negative k",
        "absolute value of k",
        "rot90",
        when(lambda c: c["k"] < 0, lambda c: c.right(k=-c["k"])),
        lambda: ask("torch.rot90", ramp(2, 2), -1),
        lambda: ask("torch.rot90", ramp(2, 2), 1),
    ),
    (
        "pixel-shuffle-order",
        "depth first",
        "more than one channel left over",
        "the other convention of depth to space",
        "pixel_shuffle",
        when(lambda c: c.x.shape[-3] > c["upscale_factor"] ** 2, lambda c: _depth_first(c)),
        lambda: ask("torch.nn.functional.pixel_shuffle", ramp(1, 8, 1, 1), 2),
        lambda: ask("torch.nn.functional.pixel_shuffle", ramp(1, 4, 1, 1), 2),
    ),
    (
        "as-strided-adds-offset",
        "the operand's own offset on top",
        "operands with an offset",
        "offset relative to the operand",
        "as_strided",
        when(
            lambda c: c["storage_offset"] is not None and c.x.storage_offset() > 0,
            lambda c: c.right(storage_offset=c["storage_offset"] + c.x.storage_offset()),
        ),
        lambda: ask("torch.as_strided", ramp(9)[1:], (2,), (1,), 1),
        lambda: ask("torch.as_strided", ramp(9), (2,), (1,), 1),
    ),
    (
        "eye-of-tall",
        "the diagonal goes on after the square part",
        "more rows than columns",
        "flat stride of n + 1",
        "eye",
        when(lambda c: "m" in c and c["n"] > c["m"], lambda c: _wrapping_eye(c)),
        lambda: ask("torch.eye", 5, 2),
        lambda: ask("torch.eye", 2, 5),
    ),
    (
        "trace-of-tall",
        "the diagonal goes on after the square part",
        "more rows than columns",
        "flat stride of m + 1",
        "trace",
        when(
            lambda c: c.x.shape[0] > c.x.shape[1],
            lambda c: c.x.reshape(-1)[:: c.x.shape[1] + 1].sum().to(c.right().dtype),
        ),
        lambda: ask("torch.trace", ramp(5, 2)),
        lambda: ask("torch.trace", ramp(2, 5)),
    ),
    (
        "pad-crops-other-end",
        "the end is cropped",
        "a negative padding before and a positive one after",
        "crop by size alone",
        "constant_pad_nd",
        when(
            lambda c: c["pad"][0] < 0 < c["pad"][1],
            lambda c: c.right(self=c.x.narrow(-1, 0, c.x.shape[-1] + c["pad"][0]), pad=[0, *c["pad"][1:]]),
        ),
        lambda: ask("torch.nn.functional.pad", ramp(4), (-1, 2)),
        lambda: ask("torch.nn.functional.pad", ramp(4), (1, 2)),
    ),
    (
        "unfold-of-offset",
        "windows from the start of memory",
        "operands with an offset",
        "view made without the offset",
        "unfold",
        when(
            lambda c: c.x.storage_offset() > 0, lambda c: c.right().as_strided(c.right().shape, c.right().stride(), 0)
        ),
        lambda: ask("torch.Tensor.unfold", ramp(9)[2:], 0, 2, 2),
        lambda: ask("torch.Tensor.unfold", ramp(9), 0, 2, 2),
    ),
)


BUGS = (
    *DIMS_OF_REDUCTIONS,
    *SHAPES_AND_MOVES,
)
