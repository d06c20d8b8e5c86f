"""Variants of the sizes of the inputs: 0-d, one dim, no rows, one row, odd sizes, equal sizes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call
from torchstone.conformance.variants.dim_arguments import with_dim
from torchstone.conformance.variants.layout import transposed
from torchstone.conformance.variants.protocol import NotApplicable, Variant
from torchstone.conformance.variants.support import change_inputs, resized, taken, together

OF_EACH_OPERAND = 2
"""Sizes of an operand that is alone smaller, or longer."""

SIDE = 5
"""The size of every dim in the variant ``square``."""


def _scalar(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 0 or not tensor.numel() else tensor.reshape(-1)[0].clone()


def _along_first(case: Case) -> dict[str, Call]:
    """The calls of ops along a dim that is given, along the first one, by result."""
    return {call.result: told for call in case.program.calls for told in with_dim(call, 0) if _is_given(call, told)}


def line(case: Case) -> Case:
    """Every input of several dims in one dim; of ops along a dim, that dim is 0."""
    changed = change_inputs(case, lambda t: t.reshape(-1).clone() if t.dim() > 1 else t, "no input has two dims")
    along = _along_first(case)
    return changed.replace(program=case.program.rewrite(lambda call: along.get(call.result, call)))


def scalar(case: Case) -> Case:
    """Every input 0-d; of ops along a dim, that dim is 0, and so are the places that it is indexed with."""
    changed = change_inputs(case, _scalar, "every input is 0-d already")
    along = _along_first(case)
    if not along:
        return changed
    places = [name for name in list(case.inputs)[1:] if changed.inputs[name].dtype in (torch.int32, torch.int64)]
    inputs = {name: t.zero_() if name in places else t for name, t in changed.inputs.items()}
    return changed.replace(inputs=inputs, program=case.program.rewrite(lambda call: along.get(call.result, call)))


def _without_dim(tensor: Tensor) -> Tensor:
    return tensor[0].clone() if tensor.shape[0] else tensor.sum(0).to(tensor.dtype)


def _with_dim(tensor: Tensor) -> Tensor:
    return torch.stack([tensor, tensor.flip(0)])


def _filled_out(tensor: Tensor, like: Tensor) -> Tensor:
    """A tensor with the leading dims of another one that has more, its elements other ones in each of its copies."""
    leading = like.shape[: like.dim() - tensor.dim()]
    copies = [tensor.reshape(-1).roll(k) for k in range(leading.numel())]
    return torch.stack(copies).reshape(*leading, *tensor.shape)


def _changed(change: Callable[[Tensor], Tensor], chosen: list[Tensor], tensor: Tensor) -> Tensor:
    return change(tensor) if any(tensor is each for each in chosen) else tensor


def other_ranks(case: Case) -> list[Case]:
    """The case with a leading dim less, and with one more, as far as eager takes that; and with no input that is
    broadcast for want of dims: a mask for each row of a batch, in place of one for all.

    Of all inputs that have most dims, or that have fewer; where eager takes nothing of that, of each of them alone.
    """
    most = max((tensor.dim() for tensor in case.args), default=0)
    longest = [name for name, tensor in case.inputs.items() if tensor.dim() == most > 0]
    shorter = [name for name, tensor in case.inputs.items() if 0 < tensor.dim() < most and tensor.numel()]
    fill = partial(_filled_out, like=case.inputs[longest[0]]) if longest and case.inputs[longest[0]].numel() else None
    found = []
    for change, chosen in ((_without_dim, longest), (_with_dim, longest), (fill, shorter)):
        for names in dict.fromkeys((tuple(chosen), *((name,) for name in chosen))) if change else ():
            with contextlib.suppress(NotApplicable, NotImplementedError):
                changed = change_inputs(case, partial(_changed, change, [case.inputs[name] for name in names]), "")
                if taken(changed):
                    found.append(changed)
                    break
    return found


def _ranks(case: Case) -> Case:
    """The case with a leading dim less, with one more and with none that is broadcast, in one program."""
    if not (found := other_ranks(case)):
        raise NotApplicable("eager takes no other number of dims")
    return together(found)


def _is_given(call: Call, told: Call) -> bool:
    """Whether the dim that was told was one of the call's own arguments."""
    return len(call.args) == len(told.args) and call.kwargs.keys() == told.kwargs.keys()


def _leading(size: int) -> Callable[[Case], Case]:
    """Cut the leading dim of the first input to ``size``, and of every input with as many rows.

    Inputs of fewer dims only if eager does not take the case otherwise: they may be parameters of as many channels, and
    eager's batch norm writes past the end of those that are too short.
    """

    def make(case: Case) -> Case:
        first = next((t for t in case.args if t.dim()), None)
        if first is None or first.shape[0] <= size:
            raise NotApplicable(f"no input has more than {size} rows")
        rows, dims = first.shape[0], first.dim()

        def cut(tensor: Tensor, least: int) -> Tensor:
            return tensor[:size].clone() if tensor.dim() >= least and tensor.shape[0] == rows else tensor

        changed = change_inputs(case, lambda tensor: cut(tensor, dims), "nothing to cut")
        return changed if taken(changed) else change_inputs(case, lambda tensor: cut(tensor, 1), "nothing to cut")

    return make


emptied = _leading(0)


def _without_columns(tensor: Tensor) -> Tensor:
    return tensor[..., :0].clone() if tensor.dim() > 1 else tensor


def without_columns(case: Case) -> Case:
    """The case with last dims of size 0, of inputs with several."""
    if not _has_two_dims(case):
        raise NotApplicable("no input has two dims")
    return change_inputs(case, _without_columns, "nothing to cut")


def both_emptied(case: Case) -> Case:
    """The case without rows, and in the same program without columns, where eager takes that: what a reduction gives
    for nothing is seen along the dim that it reduces."""
    columns = without_columns(case) if _has_two_dims(case) else None
    if columns is None or not taken(columns):
        return emptied(case)
    try:
        rows = emptied(case)
    except NotApplicable:
        return columns
    return together([rows, columns]) if taken(rows) else columns


def _has_two_dims(case: Case) -> bool:
    return any(tensor.dim() > 1 for tensor in case.args)


def smaller(case: Case) -> Case:
    """Each input in turn alone smaller, which the others are combined with: its first row, and its first column.

    And each alone longer, where eager takes that: what the others are places in or parts of.
    """
    if len(case.inputs) < 2:
        raise NotApplicable("no two operands")
    found = []
    for name, tensor in case.inputs.items():
        if tensor.dim() and tensor.shape[0] > 1:
            sizes = [tensor[0], tensor[..., :1]][: tensor.dim()]
            sizes += [longer for dim in range(tensor.dim()) for longer in _longer(tensor, dim)]
            changed = (case.replace(inputs={**case.inputs, name: other.clone()}) for other in sizes)
            found += itertools.islice(filter(taken, changed), OF_EACH_OPERAND)
    if not found:
        raise NotApplicable("eager takes no operand of another size")
    return together(found)


def _longer(tensor: Tensor, dim: int) -> Iterator[Tensor]:
    with contextlib.suppress(NotImplementedError):  # of a dtype that eager hardly has anything for
        yield resized(tensor, dim, tensor.shape[dim] + 2)


def _grown(tensor: Tensor, least: int, most: int) -> Tensor:
    for axis, size in enumerate(tensor.shape):
        if least <= size <= most:
            tensor = resized(tensor, axis, size + 1 + size % 2)
    return tensor


def _odd(case: Case) -> Case:
    """Make every size from 2 on odd and larger; and those of 1. Both where eager takes both. Equal sizes stay equal."""
    sizes, none = {size for tensor in case.args for size in tensor.shape}, "no input has a size that may be larger"
    most = max(sizes, default=0)
    ranges = [(2, most)] * (most > 1) + [(1, 1)] * (1 in sizes)
    ways = [change_inputs(case, partial(_grown, least=least, most=end), none) for least, end in ranges]
    if not ways:
        raise NotApplicable(none)
    return together(list(filter(taken, ways)) or ways[:1])


def with_equal_sizes(tensor: Tensor) -> Tensor:
    """Make every size from 2 on the same."""
    for axis, size in enumerate(tensor.shape):
        if size > 1:
            tensor = resized(tensor, axis, SIDE)
    return tensor


def _square(case: Case) -> Case:
    """Make every size from 2 on the same, and turn the order of the dims in memory round."""
    return change_inputs(case, lambda tensor: transposed(with_equal_sizes(tensor)), "no input has a size above 1")


# Eager is left to the worker: an op that counts on a dim may end the process for a scalar, as ``_chunk_cat`` does.
SCALAR = Variant("Every input 0-d.", scalar, try_eager=False)
LINE = Variant("Every input in one dim.", line)
RANKS = Variant("A leading dim less, one more, and no input broadcast for want of dims.", _ranks, try_eager=False)
EMPTY = Variant("No rows, and no columns: sizes of 0.", both_emptied)
SMALLER = Variant(
    "Each operand in turn smaller than the others, which it is repeated for, or longer where they allow it.", smaller
)
SINGLE = Variant("One row: leading dims of size 1.", _leading(1))
ODD = Variant("Every size odd: what no vector or tile divides.", _odd)
SQUARE = Variant("Every size the same, and the dims turned round in memory.", _square)
