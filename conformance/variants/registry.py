"""Variants: a case asked again in another way, one row each. What a case cannot be asked is ``Untested``, with why."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import flip_lazy_bits
from torchstone.conformance.errors import UnknownName
from torchstone.conformance.execution.undefined_behavior import undefined_behavior
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.sources.sampling import first_line, seeded
from torchstone.conformance.variants.backward import backward
from torchstone.conformance.variants.cache_key import CONSTANTS, sibling
from torchstone.conformance.variants.default_args import optional
from torchstone.conformance.variants.dtypes import mixed
from torchstone.conformance.variants.dynamic import BATCH, DYNAMIC, plan, resized
from torchstone.conformance.variants.long_dim import long
from torchstone.conformance.variants.out_of_bounds import OUTSIDE, outside
from torchstone.conformance.variants.support import NotApplicable, agreeing, taken

DEFAULT = "default"
SIDE = 5


@dataclass(frozen=True, slots=True)
class Variant:
    """``apply(case)`` returns the case asked in this way, or raises ``NotApplicable``.

    ``tried``: whether eager is asked at once if it takes the case. Not where that can end the process, as a NaN does
    (MKL's eigenvalues) and a scalar where an op counts on a dim (``_chunk_cat``): the worker finds that out.
    """

    name: str
    doc: str
    apply: Callable[[Case], Case]
    tried: bool = True


def _inputs(case: Case, change: Callable[[Tensor], Tensor], reason: str) -> Case:
    """The case with every input changed; NotApplicable when ``change`` returns all of them as they are."""
    storages = [t.untyped_storage().data_ptr() for t in case.args if t.numel()]
    if len(set(storages)) < len(storages):
        raise NotApplicable("inputs share memory, and the variant would part them")
    changed = {name: change(tensor) for name, tensor in case.inputs.items()}
    if all(changed[name] is tensor for name, tensor in case.inputs.items()):
        raise NotApplicable(reason)
    return case.replace(inputs=changed)


def _strided(tensor: Tensor) -> Tensor:
    """The same values with one unused element after each."""
    if tensor.dim() == 0 or tensor.numel() < 2:
        return tensor
    room = tensor.new_zeros((*tensor.shape, 2))
    room[..., 0] = tensor
    return room[..., 0]


def _transposed(tensor: Tensor) -> Tensor:
    """The same values with the dims in the opposite order in memory."""
    if tensor.dim() < 2 or tensor.numel() < 2:
        return tensor
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(order)


def _offset(tensor: Tensor) -> Tensor:
    """The same values behind three unused elements."""
    if not tensor.numel():
        return tensor
    room = tensor.new_zeros(tensor.numel() + 3)
    room[3:] = tensor.reshape(-1)
    return room[3:].view(tensor.shape)


def _channels_last(tensor: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    form = formats.get(tensor.dim())
    return tensor if form is None else tensor.clone(memory_format=form)


def _special(tensor: Tensor) -> Tensor:
    """Every third element replaced by NaN of either sign, an infinity, a zero, a subnormal or an extreme, in turn."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    return _sprinkled(tensor, [math.nan, math.inf, -math.inf, -0.0, info.tiny / 2, info.max, info.min, 0.0, -math.nan])


def _extremes(tensor: Tensor) -> Tensor:
    """Every third element replaced by a number at an end of what the dtype holds, in turn."""
    if not tensor.numel() or tensor.dtype == torch.bool:
        return tensor
    if _floats(tensor):
        info = torch.finfo(tensor.dtype)
        ends = [info.max, info.min, info.tiny, -info.tiny, info.eps, 1 / info.eps, math.sqrt(info.max), -1.0]
        return _sprinkled(tensor, ends)
    limits = torch.iinfo(tensor.dtype)
    return _sprinkled(tensor, [limits.max, limits.min, limits.max - 1, 0, 1, limits.max // 2 + 1])


def _small(tensor: Tensor) -> Tensor:
    """Every third element replaced by a number so near 0 that one plus it is one, or next to one, in turn."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    near, least = info.eps / 8, math.sqrt(info.tiny)
    return _sprinkled(tensor, [near, -near, least, -least, math.sqrt(info.eps), 1 + info.eps, 1 - info.eps, -2 * near])


def _shifted(tensor: Tensor) -> Tensor:
    """The same numbers beside one that is larger by half the digits of the dtype."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    sizes = torch.view_as_real(tensor.resolve_conj()).abs() if tensor.is_complex() else tensor.abs()
    largest = float(sizes.to(torch.float64).nan_to_num(0, 0, 0).max()) or 1.0
    far = 2.0 ** (math.ceil(math.log2(largest)) - math.floor(math.log2(info.eps) / 2))
    return tensor if far > info.max / 4 else tensor + far


def _lazy(case: Case) -> Case:
    """The same numbers, as the conjugates or the negatives of what lies in memory.

    Some of eager's kernels read memory as it is, and some write to it so: such cases are left out.
    """

    def lazily(tensor: Tensor) -> Tensor:
        if tensor.is_complex():
            return tensor.conj_physical().conj()
        return flip_lazy_bits(tensor.neg(), neg=True) if tensor.dtype.is_floating_point else tensor

    changed = _inputs(case, lazily, "no input of floats")
    left = [(given.fresh_args(), given) for given in (case, changed)]
    with torch.no_grad():
        plain, other = ([*flatten(given.program(*args)), *args] for args, given in left)
    if not agreeing(plain, other):
        raise NotApplicable("eager gives other results, for it reads what lies in memory as it is")
    return changed


def _floats(tensor: Tensor) -> bool:
    return bool(tensor.numel()) and (tensor.is_floating_point() or tensor.is_complex())


def _sprinkled(tensor: Tensor, values: Sequence[float]) -> Tensor:
    """A copy with every third element replaced, by the values in turn; of complex numbers every third part."""
    real = torch.view_as_real(tensor.resolve_conj()).clone() if tensor.is_complex() else tensor.clone()
    wide = torch.float64 if real.is_floating_point() else real.dtype
    flat = real.reshape(-1)
    places = torch.arange(0, flat.numel(), 3)
    wanted = torch.tensor(values, dtype=wide)
    chosen = wanted.to(real.dtype)
    if real.is_floating_point() and real.dtype.itemsize > 1:  # a cast may drop the sign of a NaN
        chosen = torch.copysign(chosen, torch.copysign(torch.ones_like(wanted), wanted).to(real.dtype))
    flat[places] = chosen[torch.arange(len(places)) % len(values)]
    out = flat.view(real.shape)
    return torch.view_as_complex(out) if tensor.is_complex() else out


def _expanded(tensor: Tensor) -> Tensor:
    """The first row in every row's place, one in memory."""
    return tensor[:1].expand(tensor.shape) if tensor.dim() and tensor.shape[0] > 1 else tensor


def _scalar(tensor: Tensor) -> Tensor:
    return tensor if tensor.dim() == 0 or not tensor.numel() else tensor.reshape(-1)[0].clone()


def _leading(size: int) -> Callable[[Case], Case]:
    """Cut the leading dim of the first input to ``size``, and of every input with as many rows.

    Inputs of fewer dims only if eager does not take the case otherwise: they may be parameters of as many channels, and
    eager's batch norm writes past the end of those that are too short.
    """

    def apply(case: Case) -> Case:
        first = next((t for t in case.args if t.dim()), None)
        if first is None or first.shape[0] <= size:
            raise NotApplicable(f"no input has more than {size} rows")
        rows, dims = first.shape[0], first.dim()

        def cut(tensor: Tensor, least: int) -> Tensor:
            return tensor[:size].clone() if tensor.dim() >= least and tensor.shape[0] == rows else tensor

        changed = _inputs(case, lambda tensor: cut(tensor, dims), "nothing to cut")
        return changed if taken(changed) else _inputs(case, lambda tensor: cut(tensor, 1), "nothing to cut")

    return apply


def _beyond(case: Case) -> Case:
    if outside(case) is None:
        raise NotApplicable("no input of whole numbers that may be an index into another one")
    return case


def _beside(case: Case) -> Case:
    if sibling(case) is None:
        raise NotApplicable("no number among the arguments that might be another")
    return case


def _odd(case: Case) -> Case:
    """Make every size from 2 on odd and larger; sizes that are equal stay equal."""

    def grown(tensor: Tensor) -> Tensor:
        for axis, size in enumerate(tensor.shape):
            if size > 1:
                tensor = resized(tensor, axis, size + 1 + size % 2)
        return tensor

    return _inputs(case, grown, "no input has a size above 1")


def _square(case: Case) -> Case:
    """Make every size from 2 on the same, and turn the order of the dims in memory round."""

    def squared(tensor: Tensor) -> Tensor:
        for axis, size in enumerate(tensor.shape):
            if size > 1:
                tensor = resized(tensor, axis, SIDE)
        return _transposed(tensor)

    return _inputs(case, squared, "no input has a size above 1")


def _varying(case: Case) -> Case:
    if len({t.untyped_storage().data_ptr() for t in case.args if t.numel()}) < sum(bool(t.numel()) for t in case.args):
        raise NotApplicable("inputs share memory, and the variant would part them")
    return case


def _row(name: str, doc: str, change: Callable[[Tensor], Tensor], reason: str, tried: bool = True) -> Variant:
    return Variant(name, doc, lambda case: _inputs(case, change, reason), tried)


_ROWS = (
    _row("strided", "Inputs with a gap after each element.", _strided, "no input has two elements along a dim"),
    _row("transposed", "Inputs with their dims in the opposite order in memory.", _transposed, "no input has two dims"),
    _row("offset", "Inputs that begin inside their storage.", _offset, "no input has an element"),
    _row("channels_last", "Inputs of four and five dims in channels-last order.", _channels_last, "no such input"),
    _row("expanded", "Inputs whose rows are one in memory: a stride of 0.", _expanded, "no input has two rows"),
    _row(
        "special",
        "NaN, infinities and zeros of both signs, subnormals, extremes.",
        _special,
        "no input of floats",
        False,
    ),
    _row(
        "extremes",
        "The largest and smallest finite numbers of the dtype, integers too.",
        _extremes,
        "no input of numbers",
        False,
    ),
    _row(
        "small",
        "Numbers next to 0 and 1, where differences cancel and one plus a number is one.",
        _small,
        "no input of floats",
        False,
    ),
    _row("scalar", "Every input 0-d.", _scalar, "every input is 0-d already", tried=False),
    Variant("empty", "No rows: leading dims of size 0.", _leading(0)),
    Variant("single", "One row: leading dims of size 1.", _leading(1)),
    Variant("odd", "Every size odd: what no vector or tile divides.", _odd),
    Variant("square", "Every size the same, and the dims turned round in memory.", _square),
    Variant(DYNAMIC, "Compiled once with every size free, run at several.", _varying),
    Variant(BATCH, "Compiled once with the leading size free, run at several.", _varying),
    Variant("backward", "The results and the gradients of the inputs.", backward),
    Variant("long", "One dim of two thousand elements: the one that is summed or scanned, if any is.", long),
    _row(
        "shifted",
        "Numbers far from 0 and near each other, whose squares cancel.",
        _shifted,
        "no input of floats",
        False,
    ),
    Variant("mixed", "Operands of two dtypes, or a tensor and a Python number of another kind.", mixed),
    Variant("optional", "Arguments given that a sample leaves out.", lambda case: optional(case, _special)),
    Variant("lazy", "Inputs that are lazily conjugated or negated: views that say so.", _lazy),
    Variant(CONSTANTS, "Compiled beside the same program with another number.", _beside),
    Variant(OUTSIDE, "Called with an index out of range: what eager refuses has to be refused.", _beyond),
)
VARIANTS: dict[str, Variant] = {row.name: row for row in _ROWS}


def apply(case: Case, name: str) -> Case | Untested:
    """The case in a variant, or why there is none: nothing to change, or eager does not take what comes of it."""
    if name == DEFAULT:
        return case
    if name not in VARIANTS:
        raise UnknownName("variant", name, [DEFAULT, *VARIANTS])
    try:
        with seeded(f"{case.id}:{name}"):
            changed = VARIANTS[name].apply(case).replace(variant=name)
            if name in (DYNAMIC, BATCH) and plan(changed) is None:
                raise NotApplicable("eager takes no other size")
            if VARIANTS[name].tried:
                with torch.no_grad():
                    if refused := undefined_behavior(changed):
                        raise NotApplicable(refused)
                    changed.program(*changed.fresh_args())
            return changed
    except NotApplicable as error:
        reason = str(error)
    except Exception as error:
        reason = f"eager raises {type(error).__name__}: {first_line(error)}"
    return Untested(case.source, case.op, case.dtype, reason, case.index, name)


def expand(
    entries: Iterable[Case | Untested],
    names: Sequence[str],
    keep: Callable[[Case | Untested, str], bool] | None = None,
) -> Iterator[Case | Untested]:
    """Each entry in each of the variants that ``keep`` wants it in; what is no case is passed on once."""
    for entry in entries:
        if isinstance(entry, Untested):
            if keep is None or keep(entry, entry.variant):
                yield entry
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in names:
                if keep is None or keep(entry, name):
                    yield apply(entry, name)
