"""Whether a backend differs from eager on a witness, and how. Far simpler than the oracle, and apart from it.

Numbers differ if one is NaN and the other is not, if the signs of zeros differ, or by more than 3 parts in a million
in float32, and by any bit in 16 bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.backends.protocol import Backend
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.planted.bug import Witness
from torchstone.conformance.program.tensor_storage import copy_tensors

SEED = 0
RELATIVE = 3e-6
STATISTIC = 0.05


def difference(witness: Witness, backend: Backend) -> str:
    """How the backend differs from eager on a witness; empty where it does not."""
    if witness.before is not None:
        before = witness.before
        backend.compile(before.program, copy_tensors(before.calls[0]))(*copy_tensors(before.calls[0]))
    compiled = backend.compile(witness.program, copy_tensors(witness.calls[0]))
    expected, actual = _calls(witness.program, witness), _calls(compiled, witness)
    if witness.measure is not None:
        return _statistics(witness, expected, actual)
    for number, (right, found) in enumerate(zip(expected, actual, strict=True), 1):
        if told := _differs(right, found):
            return f"call {number}: {told}"
    return ""


def _calls(function: Any, witness: Witness) -> list[Any]:
    """What each call leaves: results, inputs and their storages, looked at after the last one; or its exception."""
    given = [copy_tensors(args) for args in witness.calls]
    left: list[Any] = []
    for number, args in enumerate(given):
        if witness.one_memory:
            for first, later in zip(given[0], args, strict=True):
                first.copy_(later)
            args = given[0]
        torch.manual_seed(SEED + number)
        try:
            left.append((function(*args), args))
        except Exception as error:
            left.append(error)
    return left


def _statistics(witness: Witness, expected: list[Any], actual: list[Any]) -> str:
    assert witness.measure is not None
    right, found = witness.measure(expected[-1][0]), witness.measure(actual[-1][0])
    return f"{found} in place of {right}" if abs(right - found) > STATISTIC else ""


def _differs(right: Any, found: Any) -> str:
    if isinstance(right, Exception) or isinstance(found, Exception):
        same = isinstance(right, Exception) and isinstance(found, Exception)
        return "" if same else f"{_tell(found)} in place of {_tell(right)}"
    results, others = flatten(right[0]), flatten(found[0])
    if len(results) != len(others):
        return f"{len(others)} results in place of {len(results)}"
    for one, other in zip([*results, *right[1]], [*others, *found[1]], strict=True):
        if told := _unlike(one, other):
            return told
    if _sharing(right) != _sharing(found):
        return "other tensors share memory"
    for one, other in zip(right[1], found[1], strict=True):
        if not torch.equal(_bytes(one), _bytes(other)):
            return "memory of an input beside its elements"
    return ""


def _tell(value: Any) -> str:
    return repr(value)[:100] if isinstance(value, Exception) else "a result"


def _unlike(one: Any, other: Any) -> str:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return "" if one == other or one != one else f"{other} in place of {one}"
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{other.dtype}{list(other.shape)} in place of {one.dtype}{list(one.shape)}"
    one, other = one.detach().resolve_conj().resolve_neg(), other.detach().resolve_conj().resolve_neg()
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if not one.is_floating_point():
        return "" if torch.equal(one, other) else f"{other.tolist()} in place of {one.tolist()}"[:100]
    both = one.isnan() & other.isnan()
    bits = 0.0 if one.element_size() == 2 else RELATIVE
    if one.dtype is torch.float64:
        bits = 1e-9
    wide, others = one.double(), other.double()
    near = wide.isfinite() & others.isfinite() & ((wide - others).abs() <= bits * wide.abs())
    fine = both | (near | (wide == others)) & ((wide != 0) | (torch.signbit(one) == torch.signbit(other)))
    return "" if bool(fine.all()) else f"{others[~fine].tolist()[:3]} in place of {wide[~fine].tolist()[:3]}"


def _sharing(left: Any) -> list[tuple[int, int]]:
    places = [t.untyped_storage().data_ptr() for t in (*flatten(left[0]), *left[1]) if isinstance(t, Tensor)]
    return [(i, j) for i in range(len(places)) for j in range(i) if places[i] and places[i] == places[j]]


def _bytes(tensor: Tensor) -> Tensor:
    storage = tensor.untyped_storage()
    return torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
