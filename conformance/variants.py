"""Variants: a case asked again in another way, one row each. What a case cannot be asked is ``Untested``, with why."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.conformance.case import Case, Untested
from torchstone.conformance.dynamic import BATCH, DYNAMIC, plan, resized
from torchstone.conformance.errors import UnknownName
from torchstone.conformance.literals import Ref, map_leaves
from torchstone.conformance.program import Call, Program
from torchstone.conformance.sources.sampling import first_line, seeded
from torchstone.conformance.unsafe import unsafe

DEFAULT = "default"


class NotApplicable(Exception):
    """A case has nothing that the variant is about; the message is the reason."""


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
    """Every third element replaced by NaN, an infinity, a zero of either sign, a subnormal or an extreme, in turn."""
    if not _floats(tensor):
        return tensor
    info = torch.finfo(tensor.dtype)
    return _sprinkled(tensor, [math.nan, math.inf, -math.inf, -0.0, info.tiny / 2, info.max, info.min, 0.0])


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


def _floats(tensor: Tensor) -> bool:
    return bool(tensor.numel()) and (tensor.is_floating_point() or tensor.is_complex())


def _sprinkled(tensor: Tensor, values: Sequence[float]) -> Tensor:
    """A copy with every third element replaced, by the values in turn; of complex numbers every third part."""
    real = torch.view_as_real(tensor.resolve_conj()).clone() if tensor.is_complex() else tensor.clone()
    wide = torch.float64 if real.is_floating_point() else real.dtype
    flat = real.reshape(-1)
    places = torch.arange(0, flat.numel(), 3)
    chosen = torch.tensor(values, dtype=wide).to(real.dtype)
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
        return changed if _taken(changed) else _inputs(case, lambda tensor: cut(tensor, 1), "nothing to cut")

    return apply


def _odd(case: Case) -> Case:
    """Make every size from 2 on odd and larger; sizes that are equal stay equal."""

    def grown(tensor: Tensor) -> Tensor:
        for axis, size in enumerate(tensor.shape):
            if size > 1:
                tensor = resized(tensor, axis, size + 1 + size % 2)
        return tensor

    return _inputs(case, grown, "no input has a size above 1")


def _taken(case: Case) -> bool:
    try:
        with torch.no_grad():
            if unsafe(case):
                return False
            case.program(*case.fresh_args())
    except Exception:
        return False
    return True


def _varying(case: Case) -> Case:
    if len({t.untyped_storage().data_ptr() for t in case.args if t.numel()}) < sum(bool(t.numel()) for t in case.args):
        raise NotApplicable("inputs share memory, and the variant would part them")
    return case


def _backward(case: Case) -> Case:
    """The program, and the gradients of its differentiable results for given gradients of them."""
    program = case.program
    if any(call.target == "torch.autograd.grad" for call in program.calls):
        raise NotApplicable("the program takes gradients already")
    floats = [name for name, t in case.inputs.items() if t.is_floating_point() or t.is_complex()]
    if not floats:
        raise NotApplicable("no input is differentiable")
    try:
        forward, results = _forward(case, floats)
    except RuntimeError:  # an input that is no parameter, a running mean: leave those out that cannot be alone
        floats = [name for name in floats if _runs(case, name)]
        forward, results = _forward(case, floats)
    paths = [path for path, value in _results(results) if value.requires_grad]
    if not paths:
        raise NotApplicable("no result is differentiable")
    given = {f"cotangent{i}": torch.randn_like(_at(results, path)) for i, path in enumerate(paths)}
    refs = [_ref(forward.outputs, path) for path in paths]
    gradients = Call(
        "torch.autograd.grad",
        (refs, [Ref(f"{name}_leaf") for name in floats], [Ref(name) for name in given]),
        {"allow_unused": True},
        "gradients",
    )
    detached = [Call("torch.Tensor.detach", (ref,), {}, f"result{i}") for i, ref in enumerate(refs)]
    outputs = (*(Ref(call.result) for call in detached), Ref("gradients"))
    whole = Program((*program.inputs, *given), (*forward.calls, gradients, *detached), outputs)
    return case.replace(program=whole, inputs={**case.inputs, **given})


def _forward(case: Case, wanted: Sequence[str]) -> tuple[Program, Any]:
    """The program on leaves that ask for gradients in place of the inputs ``wanted``, and what it gives."""
    program = case.program

    def leaf(value: Any) -> Any:
        return Ref(f"{value.name}_leaf", value.path) if isinstance(value, Ref) and value.name in wanted else value

    leaves = [Call("torch.Tensor.detach", (Ref(name),), {}, f"{name}_data") for name in wanted]
    leaves += [Call("torch.Tensor.requires_grad_", (Ref(f"{name}_data"),), {}, f"{name}_leaf") for name in wanted]
    calls = [
        Call(c.target, map_leaves(c.args, leaf), {k: map_leaves(v, leaf) for k, v in c.kwargs.items()}, c.result)
        for c in program.calls
    ]
    forward = Program(program.inputs, (*leaves, *calls), map_leaves(program.outputs, leaf))
    with torch.enable_grad():
        return forward, forward(*case.fresh_args())


def _runs(case: Case, name: str) -> bool:
    try:
        _forward(case, [name])
    except RuntimeError:
        return False
    return True


def _results(results: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Tensor]]:
    """The tensors among the results, by where they are."""
    if isinstance(results, Tensor):
        yield path, results
    elif isinstance(results, tuple | list):
        for index, item in enumerate(results):
            yield from _results(item, (*path, index))
    elif isinstance(results, Mapping):
        for key, item in results.items():
            yield from _results(item, (*path, key))


def _at(results: Any, path: Sequence[Any]) -> Tensor:
    for step in path:
        results = results[step]
    return results


def _ref(outputs: Any, path: Sequence[Any]) -> Ref:
    """The reference to a result: into the tree of outputs as far as it goes, then into what the call gave."""
    steps = list(path)
    while not isinstance(outputs, Ref):
        outputs = outputs[steps.pop(0)]
    return Ref(outputs.name, (*outputs.path, *steps))


def _row(name: str, doc: str, change: Callable[[Tensor], Tensor], reason: str, tried: bool = True) -> Variant:
    return Variant(name, doc, lambda case: _inputs(case, change, reason), tried)


_ROWS = (
    _row("strided", "Inputs with a gap after each element.", _strided, "no input has two elements along a dim"),
    _row("transposed", "Inputs with their dims in the opposite order in memory.", _transposed, "no input has two dims"),
    _row("offset", "Inputs that begin inside their storage.", _offset, "no input has an element"),
    _row("channels_last", "Inputs of four and five dims in channels-last order.", _channels_last, "no such input"),
    _row("expanded", "Inputs whose rows are one in memory: a stride of 0.", _expanded, "no input has two rows"),
    _row(
        "special", "NaN, infinities, zeros of both signs, subnormals, extremes.", _special, "no input of floats", False
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
    Variant(DYNAMIC, "Compiled once with every size free, run at several.", _varying),
    Variant(BATCH, "Compiled once with the leading size free, run at several.", _varying),
    Variant("backward", "The results and the gradients of the inputs.", _backward),
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
                    if refused := unsafe(changed):
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
