"""Bugs of indices, selection, order and search."""

from __future__ import annotations

from typing import Any

import torch

from torchstone.conformance.planted.bug import ask, bugs
from torchstone.conformance.planted.changes import (
    INF,
    along,
    argument,
    f32,
    floats,
    i64,
    put,
    ramp,
    strided,
    when,
)
from torchstone.conformance.planted.op_call import OpCall


def _last_wins(call: OpCall) -> torch.Tensor:
    """Each index takes the last of its terms alone."""
    return call["self"] + torch.zeros_like(call["self"]).scatter(along(call), call["index"], call["src"])


def _indices(call: OpCall) -> list[Any]:
    return list(call["indices"])


def _negatives_to_zero(call: OpCall) -> Any:
    return call.right(
        indices=[i if i is None or i.dtype in (torch.bool, torch.uint8) else i.clamp(min=0) for i in _indices(call)]
    )


def _apart(call: OpCall) -> bool:
    """Whether the first dim is taken whole, and the indices stand apart."""
    given = [i is not None for i in _indices(call)]
    return (
        len(given) > 2
        and not given[0]
        and given[1]
        and "".join("x" if g else " " for g in given).strip().count(" ") > 0
    )


def _empty_bags(call: OpCall) -> Any:
    out, *rest = call.right()
    sizes = torch.bincount(rest[0], minlength=out.shape[0]) if rest[0].numel() else torch.zeros(out.shape[0])
    offsets = call["offsets"]
    ends = torch.cat([offsets[1:], offsets.new_tensor([call["indices"].numel()])])[: out.shape[0]]
    sizes = ends - offsets[: out.shape[0]]
    return put(out, (sizes == 0).unsqueeze(1), -INF), *rest


INDICES = bugs(
    "indices",
    (
        "scatter-add-loses-duplicates",
        "the last of the terms of an index",
        "an index that occurs more than once",
        "vector scatter without conflict detection",
        "scatter_add",
        when(lambda c: c.x.dim() > 0, _last_wins),
        lambda: ask("torch.scatter_add", ramp(3), 0, i64(0, 0), f32(1, 2)),
        lambda: ask("torch.scatter_add", ramp(3), 0, i64(0, 1), f32(1, 2)),
    ),
    (
        "accumulate-loses-duplicates",
        "the last of the terms of an index",
        "index_put with accumulate and equal indices",
        "reads all before it writes",
        "index_put",
        when(
            lambda c: c["accumulate"],
            lambda c: (
                c["self"]
                .clone()
                .index_put(
                    _indices(c), c["self"][tuple(slice(None) if i is None else i for i in _indices(c))] + c["values"]
                )
            ),
        ),
        lambda: ask("torch.index_put", ramp(3), [i64(0, 0)], f32(1, 2), True),
        lambda: ask("torch.index_put", ramp(3), [i64(0, 1)], f32(1, 2), True),
    ),
    (
        "negative-index-is-zero",
        "the first element",
        "negative indices",
        "no wrapping, and a clamp: apache/tvm#20297",
        "index index_put",
        _negatives_to_zero,
        lambda: ask("torch.Tensor.__getitem__", ramp(3), i64(-1)),
        lambda: ask("torch.Tensor.__getitem__", ramp(3), i64(1)),
    ),
    (
        "indices-apart",
        "the dims of the indices come in the place of the first of them",
        "indices with a slice between, after a slice",
        "the rule for adjacent indices",
        "index",
        when(_apart, lambda c: c.right().movedim(0, 1)),
        lambda: ask("torch.ops.aten.index.Tensor", ramp(2, 3, 2, 3), [None, i64(0, 1, 2), None, i64(0, 1, 2)]),
        lambda: ask("torch.ops.aten.index.Tensor", ramp(2, 3), [i64(0, 1)]),
    ),
    (
        "scatter-reduce-counts-self",
        "the element itself is part of the mean",
        "include_self is false",
        "attribute ignored",
        "scatter_reduce",
        when(lambda c: c["reduce"] in ("mean", "amax", "amin"), lambda c: c.right(include_self=True)),
        lambda: ask("torch.scatter_reduce", f32(9, 9), 0, i64(0), f32(1.0), "amax", include_self=False),
        lambda: ask("torch.scatter_reduce", f32(9, 9), 0, i64(0), f32(1.0), "sum", include_self=False),
    ),
    (
        "index-add-once-scaled",
        "alpha for the first of equal indices alone",
        "alpha and equal indices",
        "scale hoisted out of the loop",
        "index_add",
        when(
            lambda c: c["alpha"] != 1 and c["index"].numel() > len(set(c["index"].tolist())), lambda c: c.right(alpha=1)
        ),
        lambda: ask("torch.index_add", ramp(3), 0, i64(0, 0), f32(1, 2), alpha=2),
        lambda: ask("torch.index_add", ramp(3), 0, i64(0, 1), f32(1, 2), alpha=2),
    ),
    (
        "embedding-bag-of-nothing",
        "-inf",
        "an empty bag, mode max",
        "maximum that starts from -inf",
        "_embedding_bag _embedding_bag_forward_only",
        when(lambda c: c["mode"] == 2, lambda c: _empty_bags(c)),
        lambda: ask("torch.nn.functional.embedding_bag", i64(0, 1), ramp(3, 2), i64(0, 0), mode="max"),
        lambda: ask("torch.nn.functional.embedding_bag", i64(0, 1), ramp(3, 2), i64(0, 1), mode="max"),
    ),
    (
        "embedding-bag-unweighted",
        "weights of 1",
        "per_sample_weights in a bag of more than one",
        "attribute ignored",
        "_embedding_bag _embedding_bag_forward_only",
        when(
            lambda c: c["per_sample_weights"] is not None,
            lambda c: c.right(per_sample_weights=torch.ones_like(c["per_sample_weights"])),
        ),
        lambda: ask(
            "torch.nn.functional.embedding_bag", i64(0, 1), ramp(3, 2), i64(0), mode="sum", per_sample_weights=f32(2, 3)
        ),
        lambda: ask("torch.nn.functional.embedding_bag", i64(0, 1), ramp(3, 2), i64(0), mode="sum"),
    ),
    (
        "put-overwrites",
        "the last of equal indices wins",
        "accumulate",
        "attribute ignored",
        "put",
        argument(lambda c: c["accumulate"], accumulate=False),
        lambda: ask("torch.put", ramp(3), i64(1), f32(5.0), accumulate=True),
        lambda: ask("torch.put", ramp(3), i64(1), f32(5.0)),
    ),
    (
        "index-fill-skips-negative",
        "nothing is filled",
        "negative indices",
        "comparison with a counter",
        "index_fill",
        when(lambda c: bool((c["index"] < 0).any()), lambda c: c.right(index=c["index"][c["index"] >= 0])),
        lambda: ask("torch.index_fill", ramp(3), 0, i64(-1), 9.0),
        lambda: ask("torch.index_fill", ramp(3), 0, i64(1), 9.0),
    ),
)


SELECTION = bugs(
    "selection",
    (
        "take-in-memory-order",
        "elements in the order of memory",
        "operands that are not contiguous",
        "flat index without strides",
        "take",
        when(strided, lambda c: c.right(self=torch.as_strided(c.x, c.x.shape, torch.empty(c.x.shape).stride()))),
        lambda: ask("torch.take", ramp(2, 3).T, i64(1)),
        lambda: ask("torch.take", ramp(2, 3), i64(1)),
    ),
    (
        "nonzero-in-memory-order",
        "the order of columns",
        "operands that are not contiguous",
        "walk through memory",
        "nonzero",
        when(lambda c: strided(c) and c.x.dim() == 2, lambda c: torch.nonzero(c.x.T.contiguous()).flip(1)),
        lambda: ask("torch.nonzero", (ramp(2, 3) % 2).T),
        lambda: ask("torch.nonzero", ramp(2, 3) % 2),
    ),
    (
        "masked-select-aligned-left",
        "the mask is repeated along the last dim",
        "a mask of fewer dims and a square operand",
        "broadcast from the left",
        "masked_select",
        when(
            lambda c: c["mask"].dim() == 1 and c.x.dim() == 2 and c.x.shape[0] == c.x.shape[1],
            lambda c: c.right(mask=c["mask"].unsqueeze(1)),
        ),
        lambda: ask("torch.masked_select", ramp(2, 2), torch.tensor([True, False])),
        lambda: ask("torch.masked_select", ramp(2, 2), ramp(2, 2) > 1),
    ),
    (
        "masked-scatter-restarts",
        "the source starts again in each row",
        "operands of two or more dims",
        "counter a row",
        "masked_scatter",
        when(
            lambda c: c.x.dim() == 2 and c["mask"].shape == c.x.shape,
            lambda c: torch.stack(
                [torch.masked_scatter(row, m, c["source"]) for row, m in zip(c.x, c["mask"], strict=True)]
            ),
        ),
        lambda: ask("torch.masked_scatter", torch.zeros(2, 2), torch.ones(2, 2, dtype=torch.bool), ramp(4)),
        lambda: ask("torch.masked_scatter", torch.zeros(4), torch.ones(4, dtype=torch.bool), ramp(4)),
    ),
)


def _unstable(call: OpCall) -> Any:
    dim = along(call)
    values, order = torch.sort(call["self"].flip(dim), dim=dim, stable=True, descending=call["descending"])
    return values, call["self"].shape[dim] - 1 - order


ORDER_OF_EQUAL_NUMBERS = bugs(
    "order of equal numbers",
    (
        "sort-not-stable",
        "equal numbers in reverse",
        "stable=True, rows of more than 16",
        "stable ignored beyond a network's size",
        "sort",
        when(lambda c: c.arguments.get("stable") and c.x.dim() > 0 and c.x.shape[along(c)] > 16, _unstable),
        lambda: ask("torch.sort", ramp(20) // 5, stable=True),
        lambda: ask("torch.sort", ramp(10) // 5, stable=True),
    ),
    (
        "topk-ignores-largest",
        "the largest",
        "largest=False and k is the whole row",
        "sort of the whole row",
        "topk",
        when(
            lambda c: not c["largest"] and c.x.dim() > 0 and c["k"] == c.x.shape[along(c)],
            lambda c: c.right(largest=True),
        ),
        lambda: ask("torch.topk", f32(1, 3, 2), 3, largest=False),
        lambda: ask("torch.topk", f32(1, 3, 2), 2, largest=False),
    ),
    (
        "mode-takes-greatest",
        "the greatest of the most frequent",
        "several numbers are the most frequent",
        "comparison with >=",
        "mode",
        when(
            lambda c: c.x.dim() > 0 and floats(c),
            lambda c: (-torch.mode(-c.x, c["dim"], c["keepdim"])[0], c.right()[1]),
        ),
        lambda: ask("torch.mode", f32(2, 1)),
        lambda: ask("torch.mode", f32(2, 2, 1)),
    ),
    (
        "unique-inverse-of-sorted",
        "the inverse as if the input were sorted",
        "return_inverse of an unsorted input",
        "indices of the sorted copy",
        "_unique2",
        when(
            lambda c: c["return_inverse"],
            lambda c: (c.right()[0], c.right()[1].flatten().sort()[0].reshape(c.x.shape), c.right()[2]),
        ),
        lambda: ask("torch.unique", f32(2, 1), return_inverse=True),
        lambda: ask("torch.unique", f32(1, 2), return_inverse=True),
    ),
    (
        "argsort-descending-flips-ties",
        "equal numbers in reverse",
        "stable and descending",
        "the ascending order reversed",
        "argsort sort",
        when(
            lambda c: c.arguments.get("stable") and c["descending"] and c.x.dim() > 0 and not c.x.is_complex(),
            lambda c: tuple(o.flip(along(c)) for o in torch.sort(c.x, dim=c["dim"], stable=True)),
        ),
        lambda: ask("torch.sort", f32(1, 1, 2), descending=True, stable=True),
        lambda: ask("torch.sort", f32(1, 3, 2), descending=True, stable=True),
    ),
)


def _kth_distinct(call: OpCall) -> Any:
    value = torch.unique(call.x)[call["k"] - 1]
    index = (call.x == value).nonzero()[0, 0]
    return (value.reshape(1), index.reshape(1)) if call["keepdim"] else (value, index)


def _short_count(call: OpCall) -> Any:
    values, inverse, counts = call.right()
    counts = counts.clone()
    counts[-1] = max(int(counts[-1]) - 1, 1)
    return values, inverse, counts


SEARCH_AND_RANKS = bugs(
    "search and ranks",
    (
        "kthvalue-skips-equals",
        "the k-th of the distinct numbers",
        "equal numbers before the k-th",
        "search among distinct numbers",
        "kthvalue",
        when(lambda c: c.x.dim() == 1 and c["k"] <= len(set(c.x.tolist())), lambda c: _kth_distinct(c)),
        lambda: ask("torch.kthvalue", f32(1, 1, 2), 2),
        lambda: ask("torch.kthvalue", f32(1, 3, 2), 2),
    ),
    (
        "median-takes-upper",
        "the upper of the two in the middle",
        "an even number of elements",
        "rank n / 2",
        "median nanmedian",
        when(
            lambda c: "dim" not in c and c.x.numel() % 2 == 0 and c.x.numel() > 0,
            lambda c: torch.sort(c.x.flatten())[0][c.x.numel() // 2],
        ),
        lambda: ask("torch.median", f32(1, 2)),
        lambda: ask("torch.median", f32(1, 2, 3)),
    ),
    (
        "searchsorted-side",
        "the other side",
        "numbers equal to a boundary, right=True",
        "attribute ignored",
        "searchsorted bucketize",
        argument(lambda c: c["right"], right=False),
        lambda: ask("torch.bucketize", f32(1.0), f32(1, 2), right=True),
        lambda: ask("torch.bucketize", f32(1.5), f32(1, 2), right=True),
    ),
    (
        "searchsorted-ignores-sorter",
        "the sequence as it lies",
        "a sorter",
        "attribute ignored",
        "searchsorted",
        argument(lambda c: c["sorter"] is not None, sorter=None),
        lambda: ask("torch.searchsorted", f32(3, 1, 2), f32(2.5), sorter=i64(1, 2, 0)),
        lambda: ask("torch.searchsorted", f32(1, 2, 3), f32(2.5)),
    ),
    (
        "consecutive-count-of-last",
        "one less",
        "return_counts, the last run longer than 1",
        "loop that ends before the last run",
        "unique_consecutive",
        when(lambda c: c["return_counts"] and c["dim"] is None, lambda c: _short_count(c)),
        lambda: ask("torch.unique_consecutive", f32(1, 2, 2), return_counts=True),
        lambda: ask("torch.unique_consecutive", f32(1, 1, 2), return_counts=True),
    ),
    (
        "bincount-ignores-minlength",
        "no more bins than the greatest number needs",
        "minlength beyond that",
        "attribute ignored",
        "bincount",
        argument(minlength=0),
        lambda: ask("torch.bincount", i64(0, 1), minlength=4),
        lambda: ask("torch.bincount", i64(0, 1), minlength=1),
    ),
    (
        "isin-ignores-invert",
        "not inverted",
        "invert with more than 10 test elements",
        "second algorithm without the attribute",
        "isin",
        argument(lambda c: c["invert"] and torch.as_tensor(c["test_elements"]).numel() > 10, invert=False),
        lambda: ask("torch.isin", ramp(3), ramp(11), invert=True),
        lambda: ask("torch.isin", ramp(3), ramp(3), invert=True),
    ),
)


BUGS = (
    *INDICES,
    *SELECTION,
    *ORDER_OF_EQUAL_NUMBERS,
    *SEARCH_AND_RANKS,
)
