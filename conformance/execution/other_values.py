"""Other values for the inputs of a case: of the same shapes, taken by eager, and with another result.

What an op asks of its inputs no schema tells: indices in range, a sorted row, a positive definite matrix. The inputs
that a case has meet it, so other values are made of these: elements change places, or become the mean of two. That
stays within the range. What the first values have, the others keep: a sorted row stays sorted, a symmetric matrix
symmetric, a triangular one triangular. Eager says whether it takes them.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_bits_of
from torchstone.conformance.execution.repeatability import observe
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.oracle.equality import equal, equal_tensors
from torchstone.conformance.oracle.finding import Observed
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.random.unwritten import filled
from torchstone.conformance.program.case import Case

MOST = 8
"""Changes that are tried of finite inputs together, of all, then of floats alone, then of the others."""

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def other_values(case: Case, expected: Observed) -> tuple[Case, Observed] | None:
    """The case with other values in its inputs, and what eager gives for it; None if there are none.

    ``expected`` is what eager gives for the case. The layout of the inputs stays, and what memory they share. Inputs
    with NaN or infinities stay where the others are enough: elsewhere in them these tell nothing new, and are dear to
    judge.
    """
    changes = [_Changes(tensor, case.args) for tensor in case.args]
    for wanted in (_is_finite, lambda tensor: True, _is_inexact, lambda tensor: not _is_inexact(tensor)):
        for ordinal in range(MOST):
            chosen = [change.at(ordinal) if wanted(change.tensor) else None for change in changes]
            if all(value is None for value in chosen):
                break
            other = case.replace(inputs=dict(zip(case.inputs, _written(case, chosen), strict=True)))
            if (found := eager_answer(other, expected)) is not None and not same_outputs(expected, found):
                return other, found
    return None


def eager_answer(other: Case, expected: Observed) -> Observed | None:
    """What eager gives for the case, None where it refuses it or gives results of other shapes or dtypes."""
    try:
        if undefined_behavior(other):
            return None
        found = observe(filled(other.program), other.fresh_args())
    except Exception:
        return None
    left, right = (list(map(_kind, flatten((run.outputs, run.inputs)))) for run in (expected, found))
    return found if left == right else None


def _kind(leaf: object) -> object:
    return (leaf.shape, leaf.dtype, leaf.layout) if isinstance(leaf, Tensor) else type(leaf)


def same_outputs(one: Observed, other: Observed) -> bool:
    """Whether two runs gave the same results, whatever they left in their inputs."""
    return all(map(equal, flatten(one.outputs), flatten(other.outputs)))


def _is_inexact(tensor: Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _is_finite(tensor: Tensor) -> bool:
    return not _is_inexact(tensor) or bool(torch.isfinite(tensor.detach().to(torch.complex128)).all())


def _written(case: Case, chosen: list[Tensor | None]) -> tuple[Tensor, ...]:
    """Copies of the inputs with the chosen values in their memory, but where elements overlap as windows do."""
    args = case.fresh_args()
    for arg, value in zip(args, chosen, strict=True):
        if value is not None:
            with contextlib.suppress(RuntimeError):
                _elements(arg).copy_(value)
    return args


def _elements(tensor: Tensor) -> Tensor:
    """The memory of a tensor as it is, without lazy bits, and once where several elements are one."""
    plain = flip_bits_of(tensor.detach(), tensor)
    sizes = [size if step else min(size, 1) for size, step in zip(plain.shape, plain.stride(), strict=True)]
    return plain.as_strided(sizes, plain.stride())


class _Changes:
    """The values that may take the place of a tensor's, made as they are asked for."""

    def __init__(self, tensor: Tensor, inputs: Sequence[Tensor]) -> None:
        self.tensor = tensor
        self._rest = _allowed(tensor, inputs) if tensor.numel() else iter(())
        self._made: list[Tensor] = []

    def at(self, ordinal: int) -> Tensor | None:
        """The values of this number; of a tensor with fewer the last, None where it has none."""
        self._made += itertools.islice(self._rest, max(0, ordinal + 1 - len(self._made)))
        return self._made[min(ordinal, len(self._made) - 1)] if self._made else None


def _allowed(tensor: Tensor, inputs: Sequence[Tensor]) -> Iterator[Tensor]:
    """Other values for the memory of a tensor that have what its own have, the likeliest to be taken first."""
    elements = _elements(tensor)
    had: set[object] | None = None
    for change in (_mixed, _moved, _from_others(tensor, inputs), _halfway, _negated, _stepped):
        try:
            for value in change(elements):
                had = _properties(elements) if had is None else had
                if not equal_tensors(value, elements) and had <= _properties(value):
                    yield value
        except (RuntimeError, TypeError):  # a dtype that PyTorch has no kernel for
            continue


def _places(tensor: Tensor) -> Iterator[Tensor]:
    """The elements in other places: what is distinct along a dim stays so, and a symmetric matrix symmetric."""
    every = list(range(tensor.dim()))
    yield tensor.flip(every)
    if _is_square(tensor):
        yield tensor.flip((-2, -1)).mT
    if tensor.dim():
        yield tensor.roll(1, -1)
        yield tensor.flip(0)


def _moved(tensor: Tensor) -> Iterator[Tensor]:
    bits = tensor if tensor.is_complex() else tensor.view(_SAME_SIZE[tensor.element_size()])
    for moved in _places(bits):
        yield moved.view(tensor.dtype)


def _mixed(tensor: Tensor) -> Iterator[Tensor]:
    """Means of two elements each, in wide arithmetic."""
    if not _is_inexact(tensor):
        return
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    if bool(wide.isfinite().all()):
        for moved in itertools.islice(_places(wide), 2):
            yield (wide * 0.25 + moved * 0.75).to(tensor.dtype)


def _from_others(tensor: Tensor, inputs: Sequence[Tensor]) -> Callable[[Tensor], Iterator[Tensor]]:
    """Elements of the other inputs of its dtype: for what compares one with another."""

    def change(elements: Tensor) -> Iterator[Tensor]:
        others = [one.detach().reshape(-1) for one in inputs if one is not tensor and one.dtype is tensor.dtype]
        if others and _is_inexact(tensor):
            row = torch.cat([*others, elements.reshape(-1)])
            yield row[torch.arange(elements.numel()) % len(row)].view(elements.shape)

    return change


def _halfway(tensor: Tensor) -> Iterator[Tensor]:
    """Elements halfway to the next one along the last dim, or to the one before: what is sorted stays so."""
    if not tensor.dim() or tensor.dtype is torch.bool or tensor.shape[-1] < 2:
        return
    wide = tensor.to(torch.float64) if tensor.is_floating_point() else tensor
    first, last = wide[..., :1], wide[..., -1:]
    for beside in (torch.cat((wide[..., 1:], last), -1), torch.cat((first, wide[..., :-1]), -1)):
        middle = wide + (beside - wide) / 2 if _is_inexact(wide) else wide + (beside - wide) // 2
        yield middle.to(tensor.dtype)


def _negated(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.dtype is torch.bool:
        yield ~tensor
    elif _is_inexact(tensor):
        yield -tensor


def _stepped(tensor: Tensor) -> Iterator[Tensor]:
    """Nearby numbers, for what is one number everywhere."""
    if _is_inexact(tensor):
        yield tensor * 0.75
        yield tensor + 0.25
    elif tensor.dtype is not torch.bool:
        yield tensor - 1
        yield tensor + 1


def _is_square(tensor: Tensor) -> bool:
    return tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 1


def _properties(tensor: Tensor) -> set[object]:
    """What an op may ask of values, and does not always check: order, distinctness, the form of a matrix."""
    found: set[object] = set()
    if tensor.dtype is torch.bool:
        return found
    if not tensor.is_complex():
        comparable = tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)
        for dim, size in enumerate(tensor.shape):
            if size < 2:
                continue
            one, following = comparable.narrow(dim, 0, size - 1), comparable.narrow(dim, 1, size - 1)
            for name, relation in (("rising", torch.le), ("falling", torch.ge)):
                if bool(relation(one, following).all()):
                    found.add((name, dim))
            if not tensor.is_floating_point():
                ordered = comparable.sort(dim).values
                if bool((ordered.narrow(dim, 0, size - 1) != ordered.narrow(dim, 1, size - 1)).all()):
                    found.add(("distinct", dim))
    if _is_square(tensor):
        plain = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
        forms = {"symmetric": plain.mH, "lower": plain.tril(), "upper": plain.triu()}
        found |= {name for name, form in forms.items() if bool((form == plain).all())}
    return found
