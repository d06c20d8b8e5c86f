"""Inputs for which eager PyTorch has undefined behavior: out-of-bounds access, uninitialized memory, integer overflow,
writes to what is read.

Such cases are reported as ``untested``: running them could corrupt the memory of the process, and eager has no answer
to compare with. The rules are those of PyTorch's documentation of each operator. Example: ``segment_reduce`` does not
check that the lengths add up to no more than the rows of its data.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from torchstone.compiler._torch.modes import ComputingMode
from torchstone.compiler._torch.operators import schema_of
from torchstone.compiler._torch.settings import onednn_off
from torchstone.compiler._torch.write_order import order_decides
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.op_traits.undetermined import (
    CALLS_UNDEFINED_BEHAVIOR,
    ENDS_THE_PROCESS,
    FINITE_MATRICES,
    UNDEFINED_BEHAVIOR,
)
from torchstone.conformance.oracle.pytree import leaves_of
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call

SEED = 20
Rule = Callable[[Mapping[str, Any]], "str | None"]
_RULES: Implementations[Rule] = Implementations(UNDEFINED_BEHAVIOR)
"""From an operator's arguments by name to what is wrong with them."""


@_RULES.register("segment_reduce")
def _segments(given: Mapping[str, Any]) -> str | None:
    data, axis = given["data"], given["axis"]
    lengths, offsets = given["lengths"], given["offsets"]
    ends = offsets if lengths is None else lengths
    if ends is None or not ends.dim() or not data.dim():
        return None
    if ends.shape[:-1] != data.shape[:axis]:
        return "segment_reduce: lengths or offsets are not as many as the rows"
    size = data.shape[axis]
    if lengths is not None:
        fits = bool((lengths >= 0).all()) and bool((lengths.sum(-1) <= size).all())
    else:
        fits = bool((offsets.diff(dim=-1) >= 0).all()) and bool((offsets[..., :1] >= 0).all())
        fits = fits and bool((offsets[..., -1:] <= size).all())
    return None if fits else "segment_reduce: the segments go beyond the data"


@_RULES.register("_embedding_bag", "_embedding_bag_forward_only")
def _bags(given: Mapping[str, Any]) -> str | None:
    offsets = given["offsets"]
    if given["include_last_offset"] and offsets.numel() and int(offsets[-1]) != given["indices"].numel():
        return "embedding_bag: the last offset is not the number of indices"
    if not offsets.numel() and given["indices"].numel():
        return "embedding_bag: indices are in no bag"
    return None


@_RULES.register("lu_unpack")
def _pivots(given: Mapping[str, Any]) -> str | None:
    lu, pivots = given["LU_data"], given["LU_pivots"]
    if not given["unpack_pivots"] or lu.dim() < 2:
        return None
    rows = lu.shape[-2]
    if pivots.shape != (*lu.shape[:-2], min(lu.shape[-2:])) or bool(((pivots < 1) | (pivots > rows)).any()):
        return "lu_unpack: the pivots are not those of such a matrix"
    return None


@_RULES.register(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_functional",
    "_native_batch_norm_legit_no_training",
    "_batch_norm_with_update",
    "_batch_norm_with_update_functional",
    "_batch_norm_no_update",
)
def _channels(given: Mapping[str, Any]) -> str | None:
    x = given["input"]
    names = ("weight", "bias", "running_mean", "running_var")
    if x.dim() > 1 and any(t is not None and t.numel() != x.shape[1] for t in map(given.get, names)):
        return "batch_norm: a parameter has not as many elements as there are channels"
    written = [given.get(name) for name in names[2:]] if given.get("training", True) else []
    if any(t is not None and t.numel() > 1 and t.stride(-1) == 0 for t in written):
        return "batch_norm: the running statistics it updates, one after the other, are one in memory"
    return None


@_RULES.register("histc", "histogram", "_histogramdd_from_bin_cts")
def _places(given: Mapping[str, Any]) -> str | None:
    x, bins = given["self"], given["bins"]
    counts = bins if isinstance(bins, list | tuple) else [bins]
    if not x.numel() or not x.is_floating_point() or not all(isinstance(count, int) for count in counts):
        return None
    ranges = given.get("range") or [given.get("min", 0), given.get("max", 0)] * len(counts)
    margin = 1.0 if "min" in given else 0.5  # of histc, and of the others
    columns = x.reshape(-1, x.shape[-1]).unbind(1) if bins is counts else [x.reshape(-1)]
    for column, count, low, high in zip(columns, counts, ranges[::2], ranges[1::2], strict=False):
        if low == high:
            low, high = column.min().item(), column.max().item()
        low, high = (low - margin, high + margin) if low == high else (low, high)
        first, last = (torch.tensor(edge, dtype=torch.float64).to(x.dtype) for edge in (low, high))
        inside = column[(column >= first) & (column <= last)]
        if not bool(((inside - first) * count / (last - first)).isfinite().all()):
            return "histogram: the range is too wide for the dtype, or of no width: a place is NaN or infinity"
    return None


@_RULES.register("_chunk_cat")
def _chunks(given: Mapping[str, Any]) -> str | None:
    if given["tensors"] and not given["tensors"][0].dim():
        return "_chunk_cat: of tensors without a dim eager reads sizes that there are none of"
    return None


@_RULES.register("multi_margin_loss", "multilabel_margin_loss_forward")
def _rows(given: Mapping[str, Any]) -> str | None:
    if not given["self"].numel() and given["reduction"] != 0:
        return "eager's loss of no rows is memory that nobody wrote to"
    return None


@_RULES.register(
    "max_pool2d_with_indices_backward",
    "max_pool3d_with_indices_backward",
    "adaptive_max_pool2d_backward",
    "adaptive_max_pool3d_backward",
)
def _maxima(given: Mapping[str, Any]) -> str | None:
    x, indices = given["self"], given["indices"]
    dims = 3 if "3d" in given["operator"] else 2
    if not indices.numel() or x.dim() < dims:
        return None
    first = 0 if "adaptive" in given["operator"] else -1  # of a window without a maximum
    if bool(((indices < first) | (indices >= math.prod(x.shape[-dims:]))).any()):
        return f"{given['operator']}: an index is none of the input's: eager writes there"
    return None


@_RULES.register(
    "special_chebyshev_polynomial_v",
    "special_chebyshev_polynomial_w",
    "special_shifted_chebyshev_polynomial_v",
    "special_shifted_chebyshev_polynomial_w",
)
def _degrees(given: Mapping[str, Any]) -> str | None:
    degrees = torch.as_tensor(given["n"]).double()
    if bool((degrees.abs() >= 2.0**62).any()):
        return f"{given['operator']}: a degree n whose 2 n + 1 is none of 64 bits, in which eager computes it"
    return None


@_RULES.register("_ctc_loss")
def _classes(given: Mapping[str, Any]) -> str | None:
    targets, lengths = given["targets"], torch.as_tensor(given["target_lengths"])
    if targets.dim() == 2:  # padded: what is behind a target's length is not read
        targets = targets[torch.arange(targets.shape[1]) < lengths[:, None]]
    if bool(((targets < 0) | (targets >= given["log_probs"].shape[-1])).any()):
        return "ctc_loss: a target is none of the classes: eager reads there"
    return None


@_RULES.register("_grouped_mm")
def _groups(given: Mapping[str, Any]) -> str | None:
    offs, x, y = given["offs"], given["self"], given["mat2"]
    if offs is None or offs.dim() != 1 or not offs.numel():
        return None
    ends = offs.tolist()
    length = y.shape[-1] if x.dim() == 3 else x.shape[0] if y.dim() == 3 else min(x.shape[1], y.shape[0])
    if ends == sorted(ends) and ends[0] >= 0 and ends[-1] <= length:
        return None
    return "grouped_mm: the ends of the groups fall, or lie outside of what is divided into groups"


@_RULES.register("_scaled_mm", "_scaled_mm_v2")
def _result(given: Mapping[str, Any]) -> str | None:
    dtype = given["out_dtype"]
    if dtype is None or dtype.is_floating_point:
        return None
    return f"{given['operator']}: eager's kernel for the CPU takes a dtype of the result that is documented for none"


@_RULES.register("logit_backward")
def _bound(given: Mapping[str, Any]) -> str | None:
    if given["eps"] is not None and math.isnan(given["eps"]):
        return "logit: eager's kernel for one number takes an eps of NaN for a bound within, and that for several not"
    return None


MODES = 3
"""Interpolations (bilinear, nearest, bicubic) and paddings (zeros, border, reflection), by number."""


@_RULES.register("grid_sampler_2d", "grid_sampler_3d")
def _modes(given: Mapping[str, Any]) -> str | None:
    if all(given[name] in range(MODES) for name in ("interpolation_mode", "padding_mode")):
        return _sampled_places(given) if given["grid"].shape[-1] == 3 else None
    return "grid_sampler: eager does not look at the number of a mode, and of one that there is not it writes no result"


@_RULES.register("grid_sampler_2d_backward", "grid_sampler_3d_backward")
def _sampled_places(given: Mapping[str, Any]) -> str | None:
    grid, sizes = given["grid"], torch.tensor(given["input"].shape[:1:-1])  # a place names the last dim first
    bilinear_2d = grid.shape[-1] == 2 and given["interpolation_mode"] == 0
    if grid.element_size() > 2 and not (bilinear_2d and given["padding_mode"]):
        return None
    places = ((grid.double() + 1.0) * sizes).to(grid.dtype)
    if bool(torch.isfinite(places).all()):
        return None
    return "grid_sampler: eager makes an index of a place that is no finite number; its gradient may write anywhere"


@_RULES.register("_unsafe_masked_index", "_unsafe_masked_index_put_accumulate")
def _masked_places(given: Mapping[str, Any]) -> str | None:
    for size, index in zip(given["self"].shape, given["indices"], strict=False):
        if index is not None and bool((((index < -size) | (index >= size)) & given["mask"]).any()):
            return "_unsafe_masked_index: the mask does not leave out an index that is out of range"
    return None


@_RULES.register("binomial")
def _counts(given: Mapping[str, Any]) -> str | None:
    return "binomial: eager does not return for a count of NaN" if bool(given["count"].isnan().any()) else None


@_RULES.register("fake_quantize_per_channel_affine_cachemask")
def _levels(given: Mapping[str, Any]) -> str | None:
    x, axis = given["self"], given["axis"]
    shape = [-1 if dim == axis % x.dim() else 1 for dim in range(x.dim())]
    scale, zero = given["scale"].view(shape), given["zero_point"].view(shape)
    within = ((x * (1 / scale)).double() + zero).abs() < 2.0**63
    return None if bool(within.all()) else "fake_quantize_per_channel_affine: eager makes it an integer of 64 bits"


@_RULES.register("div", "div_")
def _truncated(given: Mapping[str, Any]) -> str | None:
    if given.get("rounding_mode") != "trunc" or not (least := _where_least(given["self"], given)).any():
        return None
    meets = least & (torch.as_tensor(given["other"]) == -1)
    return "div: the least integer by -1 ends the process" if bool(meets.any()) else None


@_RULES.register("lcm", "lcm_")
def _common_multiple(given: Mapping[str, Any]) -> str | None:
    meets = any(bool(_where_least(given[name], given).any()) for name in ("self", "other"))
    return "lcm: the least integer has no absolute value" if meets else None


def _where_least(operand: Any, given: Mapping[str, Any]) -> torch.Tensor:
    """Where an operand of two is the least integer of what both are promoted to, if that is of 32 or 64 bits."""
    dtype = torch.result_type(given["self"], given["other"])
    operand = torch.as_tensor(operand)
    if dtype not in (torch.int32, torch.int64):
        return torch.zeros_like(operand, dtype=torch.bool)
    return operand == torch.iinfo(dtype).min


LONG = 256
"""Elements along one of several dims."""


@_RULES.register("_fft_c2r")
def _transform(given: Mapping[str, Any]) -> str | None:
    x, dims = given["self"], given["dim"]
    if len(dims) > 2 and any(x.shape[dim] > LONG for dim in list(dims)[:-1]):
        return "MKL's real transform back over three dims, one of them long, writes past what it was given"
    return None


_CALLS = {name.rpartition(".")[2] for name in CALLS_UNDEFINED_BEHAVIOR.ops}
OPERATORS = frozenset(UNDEFINED_BEHAVIOR.ops) | frozenset(FINITE_MATRICES.ops) | _CALLS
"""What programs call that may run such an operator; other programs are not run to see."""


class UndefinedBehavior(Exception):
    """Eager would corrupt the memory of the process, or return memory that it never wrote."""


class _CheckRules(ComputingMode):
    """Raises ``Unsafe`` before an operator is given what its rule excludes."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = schema_of(func).name.removeprefix("aten::")
        rule = _RULES.get(name)
        if rule is not None:
            schema = schema_of(func).arguments
            given = {a.name: a.default_value for a in schema} | {a.name: v for a, v in zip(schema, args, strict=False)}
            if reason := rule(given | kwargs | {"operator": name}):
                raise UndefinedBehavior(reason)
        if FINITE_MATRICES.holds(func) and not all(map(_finite, leaves_of(args, kwargs))):
            raise UndefinedBehavior(f"{name}: an operand is not finite, for which PyTorch guarantees nothing")
        if schema_of(func).is_mutable and order_decides(func, args, kwargs):
            raise UndefinedBehavior(f"{name}: it writes to elements that it reads for other elements, in an open order")
        return func(*args, **kwargs)


class _CheckLstmStates(TorchFunctionMode):
    """Raises ``Unsafe`` before ``torch.lstm`` counts cell states by hidden ones. No dispatch mode sees it called."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "lstm":
            hidden, cell = next(argument for argument in args[1:] if isinstance(argument, tuple | list))
            if hidden.shape[:1] != cell.shape[:1]:
                raise UndefinedBehavior("lstm: there are not as many cell states as hidden ones")
        return func(*args, **(kwargs or {}))


def _finite(value: Any) -> bool:
    if not isinstance(value, torch.Tensor) or not (value.is_floating_point() or value.is_complex()):
        return True
    return bool(torch.isfinite(value).all())


def _may_be_undefined(call: Call) -> bool:
    writes = call.writes and call.operator != "requires_grad"
    return writes or call.operator in OPERATORS or call.target.startswith("torch.linalg.")


def rules_checked(call: Call) -> contextlib.AbstractContextManager[Any]:
    """A context for eager to make a call in: UndefinedBehavior is raised before one that would end the process."""
    return _CheckRules() if ENDS_THE_PROCESS.has(call.operator) else contextlib.nullcontext()


def undefined_behavior(case: Case) -> str:
    """Return why eager's behavior is undefined for the case, or an empty string."""
    calls = list(case.program.every_call)
    if not any(_may_be_undefined(call) for call in calls):
        return ""
    try:
        if any(call.operator == "lstm" for call in case.program.every_call) and (refused := _without_onednn(case)):
            return f"oneDNN's LSTM does not look at sizes that PyTorch's own refuses: {refused}"
        torch.default_generator.manual_seed(SEED)
        with _CheckRules():
            case.program(*case.fresh_args())
    except UndefinedBehavior as error:
        return str(error)
    except Exception:  # for whoever runs it next
        pass
    return ""


def _without_onednn(case: Case) -> str:
    """What eager raises without oneDNN, or an empty string. Raises ``Unsafe`` where it reads past an end even so."""
    try:
        torch.default_generator.manual_seed(SEED)
        with onednn_off(), _CheckLstmStates():
            case.program(*case.fresh_args())
    except UndefinedBehavior:
        raise
    except Exception as error:
        return str(error).split("\n", 1)[0]
    return ""
