"""Where tensors lie: whether memory that is nobody's to write to was written to, and which tensors share theirs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.modes import TorchDispatchMode
from torchstone.compiler._torch.tensors import is_zero_tensor, known_version, storage_key
from torchstone.conformance.oracle.equality import same_bits, same_numbers
from torchstone.conformance.oracle.pytree import dense
from torchstone.conformance.oracle.writes import telling_overload, written_by
from torchstone.conformance.program.tensor_storage import copy_tensors, extent


def storage_as_row(tensor: Tensor) -> Tensor:
    """The whole storage of a plain tensor as a row of integers, as wide as its size allows."""
    storage = tensor.untyped_storage()
    row = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return row if storage.nbytes() % 8 else row.view(torch.int64)


def known_writes(program: Callable[..., Any], args: tuple[Tensor, ...]) -> list[bool]:
    """Whether a step of a program writes to each input, be it the number that is there already; of none where eager
    refuses the program.

    PyTorch counts the writes to a tensor, but for those of a few kernels. What these write to is in their schemas, or
    in those of the same operators that say it.
    """
    given = copy_tensors(args)
    before = [known_version(tensor) for tensor in given]
    declared = _DeclaredWrites()
    with torch.no_grad(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]), declared:
        warnings.simplefilter("ignore")
        try:
            program(*given)
        except Exception:
            return [False] * len(args)
    return [
        known_version(tensor) != count or (_plain(tensor) and storage_key(tensor) in declared.storages)
        for tensor, count in zip(given, before, strict=True)
    ]


class _DeclaredWrites(TorchDispatchMode):
    """Remembers the storages of what ops say that they write to."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        leaves = written_by(telling_overload(func, args, kwargs) or func, args, kwargs)
        self.storages.update(storage_key(leaf) for leaf in leaves if _plain(leaf))
        return func(*args, **kwargs)


def _plain(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided


def find_stray_writes(
    before: Sequence[Tensor],
    expected: Sequence[Tensor],
    actual: Sequence[Tensor],
    known: Callable[[], Sequence[bool]],
) -> tuple[list[bool], str, dict[str, Any]]:
    """Compare the memory of the inputs as a backend left it with what eager left, storage by storage, bit for bit.

    The three hold the same views of storages of their own: pristine, after eager, after the backend. Returns for each
    input whether its memory is entirely as eager left it, and of memory that eager did not write to and the backend
    did a message (empty when there is none) with its evidence. What eager wrote to is for the judge of values: inputs
    that hold other bits, and those that ``known`` names, which is asked where it counts.
    """
    settled = [False] * len(before)
    groups: dict[int, list[int]] = {}
    for index, tensor in enumerate(before):
        groups.setdefault(storage_key(tensor), []).append(index)
    for group in groups.values():
        rows = [storage_as_row(tensors[group[0]]) for tensors in (before, expected, actual)]
        if len({row.numel() for row in rows}) > 1:  # resized by the program: its views tell
            continue
        if torch.equal(rows[1], rows[2]):
            for index in group:
                settled[index] = True
            continue
        changed = [index for index in group if not same_bits(before[index], expected[index])]
        stray = rows[2].view(torch.uint8) != rows[0].view(torch.uint8)
        for index in changed:
            stray &= ~_bytes_of(before[index])
        if bool(stray.any()):
            written = known()
            for index in (index for index in group if written[index]):
                stray &= ~_bytes_of(before[index])
        if bool(stray.any()):
            return settled, *_describe_stray_write(before, actual, group, stray)
    return settled, "", {}


def _bytes_of(tensor: Tensor) -> Tensor:
    """Of each byte of a tensor's storage, whether the tensor's elements hold it."""
    storage, size = tensor.untyped_storage(), tensor.element_size()
    mask = torch.zeros(-(-storage.nbytes() // size) * size, dtype=torch.bool)
    cells = mask.view(-1, size)
    held = torch.arange(len(cells)).as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
    cells[held.reshape(-1)] = True
    return mask[: storage.nbytes()]


def _describe_stray_write(
    before: Sequence[Tensor], actual: Sequence[Tensor], group: list[int], stray: Tensor
) -> tuple[str, dict[str, Any]]:
    count = int(stray.sum())
    evidence: dict[str, Any] = {"bytes": count, "byte": int(stray.to(torch.uint8).argmax())}
    for index in group:
        if not bool((_bytes_of(before[index]) & stray).any()):
            continue
        name, was, now = f"input[{index}]", dense(before[index]), dense(actual[index])
        evidence["where"] = name
        wrong = ~same_numbers(was, now)
        if not bool(wrong.any()):
            return f"{name}: its bits were changed (the sign of a zero, a NaN), though eager leaves it alone", evidence
        at = [int(i) for i in wrong.nonzero()[0]]
        old, new = was[tuple(at)].item(), now[tuple(at)].item()
        evidence |= {"index": at, "expected": str(old), "actual": str(new), "count": int(wrong.sum())}
        return f"{name}{at or ''}: was {old!r}, is {new!r} after the call, though eager leaves it alone", evidence
    evidence["where"] = f"around input[{group[0]}]"
    message = f"{count} bytes of the memory around input[{group[0]}], which no element of an input holds, were changed"
    return message, evidence


AddressRange = tuple[int, int]


def address_range(value: Any) -> AddressRange | None:
    """The addresses from a plain tensor's first byte to past its last one; None for what has none.

    Neither has a gradient of nothing but zeros, for which PyTorch takes no memory.
    """
    if not isinstance(value, Tensor) or value.layout is not torch.strided or not value.numel():
        return None
    if is_zero_tensor(value):
        return None
    try:
        start = value.data_ptr()
    except RuntimeError:  # no memory of its own
        return None
    return start, start + extent(value.shape, value.stride(), 0) * value.element_size()


def overlapping_pairs(left: Iterable[Any], right: Iterable[Any]) -> list[tuple[int, int]]:
    """The places of tensors in the two lists whose ranges overlap. (Strided ones may still share no element.)"""
    others = [(j, found) for j, value in enumerate(right) if (found := address_range(value)) is not None]
    pairs = []
    for i, value in enumerate(left):
        mine = address_range(value)
        if mine is not None:
            pairs += [(i, j) for j, other in others if mine[0] < other[1] and other[0] < mine[1]]
    return pairs


def overwrite(tensor: Tensor) -> None:
    """Change every element of a tensor, whatever it holds."""
    plain = tensor.detach()
    sizes = [size if step else min(size, 1) for size, step in zip(plain.shape, plain.stride(), strict=True)]
    plain = plain.as_strided(sizes, plain.stride())
    number = dense(plain).to(torch.complex128 if plain.is_complex() else torch.float64)
    plain.copy_(torch.where(number == 1, 0.0, 1.0).expand(plain.shape))
