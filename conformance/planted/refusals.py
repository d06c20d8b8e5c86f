"""Bugs of what is to be refused: eager raises, and the backend gives a result."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    f32,
    i64,
    integers,
    mixed,
    ramp,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _clamped(call: OpCall) -> Any:
    name = "indices" if call.name == "embedding" else "index"
    rows = call.x.shape[0 if call.name == "embedding" else call["dim"]]
    return call.right(**{name: call[name].clamp(0, max(rows - 1, 0))})


def _wrapped(call: OpCall) -> Any:
    size = call["self"].shape[call["dim"]] if call["self"].dim() else 1
    return call.right(index=torch.where(call["index"] < 0, call["index"] + size, call["index"]))


def _common(call: OpCall) -> Any:
    """Operands cut to their common sizes."""
    one, other = call["self"], call["other"]
    if one.dim() == other.dim() and all(
        (a != b and 1 not in (a, b)) or a == b or 1 in (a, b) for a, b in zip(one.shape, other.shape, strict=True)
    ):
        for dim, (a, b) in enumerate(zip(one.shape, other.shape, strict=True)):
            if a != b and 1 not in (a, b):
                one, other = one.narrow(dim, 0, min(a, b)), other.narrow(dim, 0, min(a, b))
    return call.right(self=one, other=other)


def _cut_inner(call: OpCall) -> Any:
    keep = min(call["self"].shape[1], call["mat2"].shape[0])
    return call.right(self=call["self"][:, :keep], mat2=call["mat2"][:keep])


INPUTS_TO_BE_REFUSED = bugs(
    "inputs to be refused",
    (
        "indices-clamped",
        "the last row",
        "an index out of range",
        "bounds check removed, index clamped",
        "index_select gather embedding",
        _clamped,
        lambda: ask("torch.index_select", ramp(3), 0, i64(7)),
        lambda: ask("torch.index_select", ramp(3), 0, i64(1)),
    ),
    (
        "negative-scatter-index-wraps",
        "counted from the end",
        "a negative index",
        "wrapping put in place of a check: pytorch/pytorch#131321",
        "scatter_reduce scatter scatter_add gather",
        _wrapped,
        lambda: ask("torch.scatter_add", ramp(3), 0, i64(-1), f32(1.0)),
        lambda: ask("torch.scatter_add", ramp(3), 0, i64(1), f32(1.0)),
    ),
    (
        "sizes-cut-to-common",
        "computed on the common part",
        "operands whose sizes do not broadcast",
        "loop to the smaller size",
        "add mul sub",
        _common,
        lambda: ask("torch.add", ramp(3), ramp(2)),
        lambda: ask("torch.add", ramp(3), ramp(3)),
    ),
    (
        "inner-sizes-cut",
        "computed on the common depth",
        "a matrix product whose inner sizes differ",
        "size taken from one operand",
        "mm",
        _cut_inner,
        lambda: ask("torch.mm", ramp(2, 3), ramp(2, 2)),
        lambda: ask("torch.mm", ramp(2, 3), ramp(3, 2)),
    ),
    (
        "targets-clamped",
        "the last class",
        "a target out of range",
        "bounds check removed",
        "nll_loss_forward nll_loss2d_forward",
        lambda c: c.right(
            target=torch.where(
                c["target"] == c["ignore_index"],
                c["target"],
                c["target"].clamp(0, c["self"].shape[1 if c["self"].dim() > 1 else 0] - 1),
            )
        ),
        lambda: ask("torch.nn.functional.nll_loss", mixed(2, 3), i64(1, 7)),
        lambda: ask("torch.nn.functional.nll_loss", mixed(2, 3), i64(1, 2)),
    ),
    (
        "topk-beyond-size",
        "all there are",
        "k beyond the size",
        "k clamped",
        "topk",
        lambda c: c.right(k=min(c["k"], c.x.shape[c["dim"]] if c.x.dim() else 1)),
        lambda: ask("torch.topk", ramp(3), 5),
        lambda: ask("torch.topk", ramp(3), 2),
    ),
    (
        "cat-of-other-sizes",
        "cut to the smallest",
        "tensors whose other sizes differ",
        "sizes of the first taken for all",
        "cat",
        when(
            lambda c: all(t.dim() == 2 for t in c["tensors"]) and c["dim"] in (0, 1),
            lambda c: c.right(
                tensors=[
                    t.narrow(1 - c["dim"], 0, min(o.shape[1 - c["dim"]] for o in c["tensors"])) for t in c["tensors"]
                ]
            ),
        ),
        lambda: ask("torch.cat", [ramp(2, 2), ramp(2, 3)]),
        lambda: ask("torch.cat", [ramp(2, 2), ramp(2, 2)]),
    ),
)


def _by_nonzero(call: OpCall) -> Any:
    other = torch.as_tensor(call["other"])
    safe = torch.where(other == 0, 1, other).to(other.dtype)
    return torch.where(other == 0, 0, call.right(other=safe)).to(call.right(other=safe).dtype)


def _promoted(call: OpCall) -> Any:
    dtype = call.tensors[0].dtype
    for tensor in call.tensors[1:]:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return call.right(**{k: v.to(dtype) for k, v in call.arguments.items() if isinstance(v, torch.Tensor)})


VALUES_AND_DTYPES_TO_BE_REFUSED = bugs(
    "values and dtypes to be refused",
    (
        "integer-division-by-zero",
        "0",
        "integers divided by 0",
        "no check: pytorch/pytorch#174889",
        "remainder floor_divide fmod div",
        when(
            lambda c: (
                integers(c)
                and bool((torch.as_tensor(c["other"]) == 0).any())
                and (c.name != "div" or c.arguments.get("rounding_mode"))
            ),
            _by_nonzero,
        ),
        lambda: ask("torch.remainder", i64(7), i64(0)),
        lambda: ask("torch.remainder", i64(7), i64(2)),
    ),
    (
        "factorization-errors-dropped",
        "whatever comes out",
        "a matrix that is singular or not positive definite",
        "status not looked at",
        "_linalg_check_errors",
        lambda c: None,
        lambda: ask("torch.linalg.cholesky", f32([-1, 0], [0, 1])),
        lambda: ask("torch.linalg.cholesky", f32([1, 0], [0, 1])),
    ),
    (
        "dtypes-promoted",
        "computed in the wider dtype",
        "a matrix product of two dtypes",
        "promotion where PyTorch has none: pytorch/pytorch#171191",
        "mm bmm dot mv addmm",
        _promoted,
        lambda: ask("torch.mm", ramp(2, 2), ramp(2, 2).double()),
        lambda: ask("torch.mm", ramp(2, 2), ramp(2, 2)),
    ),
    (
        "negative-integer-exponent",
        "0",
        "integers to a negative power",
        "integer pow without a check: pytorch/xla#6750",
        "pow",
        when(
            lambda c: (
                isinstance(c["self"], torch.Tensor)
                and integers(c)
                and isinstance(c["exponent"], int)
                and c["exponent"] < 0
            ),
            lambda c: torch.zeros_like(c["self"]),
        ),
        lambda: ask("torch.pow", i64(2, 3), -1),
        lambda: ask("torch.pow", i64(2, 3), 2),
    ),
    (
        "negative-weights-accepted",
        "their magnitude",
        "negative probabilities",
        "no check",
        "multinomial",
        lambda c: c.right(self=c["self"].abs()),
        lambda: ask("torch.multinomial", f32(-1, 0, 0), 1),
        lambda: ask("torch.multinomial", f32(1, 0, 0), 1),
    ),
)


BUGS = (
    *INPUTS_TO_BE_REFUSED,
    *VALUES_AND_DTYPES_TO_BE_REFUSED,
)
