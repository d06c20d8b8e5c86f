"""Tensors as views of storages: packing to bytes, rebuilding, and copying, with layout and aliasing kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.tensors import (
    flip_bits_of,
    flip_lazy_bits,
    is_zero_tensor,
    storage_key,
    with_values_in_memory,
)
from torchstone.conformance.program.literals import ProgramError, dtype_name, parse_dtype

MAX_DIMS = 1024  # of a tensor in a file: eager makes tensors of any rank, though most of its ops stop at 64
WHOLE_STORAGE_BYTES = (
    1 << 20
)  # bytes: storages up to here are kept entire, so that as_strided may read outside its input's view


class LayoutError(ValueError):
    """A tensor that is not a plain strided CPU tensor, or a view that does not fit its storage."""


def check_plain(tensor: Tensor) -> None:
    """Raise ``LayoutError`` for a tensor that storage, size, stride and offset do not describe."""
    if type(tensor) not in (Tensor, torch.nn.Parameter):
        raise LayoutError(f"a tensor subclass ({type(tensor).__name__}) is not expressible")
    if tensor.is_nested:
        raise LayoutError("a nested tensor is not expressible")
    if tensor.layout is not torch.strided:
        raise LayoutError(f"a {str(tensor.layout).removeprefix('torch.')} tensor is not expressible")
    if tensor.is_quantized:
        raise LayoutError(f"a quantized tensor ({dtype_name(tensor.dtype)}) is not expressible")
    if tensor.device.type != "cpu":
        raise LayoutError(f"a tensor on {tensor.device} is not expressible")


def extent(shape: Iterable[int], stride: Iterable[int], offset: int) -> int:
    """Elements a storage needs to hold the view: one past the last one reached; an empty view may lie outside of it."""
    last = offset
    for size, step in zip(shape, stride, strict=True):
        if size == 0:
            return 0
        last += (size - 1) * step
    return last + 1


def _bytes_of(storage: torch.UntypedStorage, length: int) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage, 0, (length,), (1,))


def _plain(tensor: Tensor) -> Tensor:
    """The tensor without the lazy conjugate and negative bits, and with memory if it is zeros that have none."""
    if is_zero_tensor(tensor):
        return with_values_in_memory(tensor)
    return flip_bits_of(tensor.detach(), tensor)


def _view(storage: torch.UntypedStorage, like: Tensor) -> Tensor:
    """The same view as ``like`` (a plain tensor) into another storage."""
    blank = torch.empty(0, dtype=like.dtype, device=storage.device)
    return blank.set_(storage, like.storage_offset(), like.size(), like.stride())


def copy_tensors(
    tensors: Iterable[Tensor], device: torch.device | None = None, copies: dict[int, torch.UntypedStorage] | None = None
) -> tuple[Tensor, ...]:
    """Copies with the same sizes, strides, offsets and lazy bits; tensors that shared a storage share the copy.

    They are on the tensors' own device if not on another. ``copies`` are storages that have a copy already, by their
    address, and takes those that are made.
    """
    copies = {} if copies is None else copies
    result: list[Tensor] = []
    for tensor in tensors:
        plain = _plain(tensor)
        if is_zero_tensor(tensor):  # its copy has been made
            result.append(plain if device is None else plain.to(device))
            continue
        storage = plain.untyped_storage()
        key = storage_key(storage)
        if key not in copies:
            copies[key] = storage.clone() if device is None else _copied_to(storage, device)
        result.append(flip_bits_of(_view(copies[key], plain), tensor))
    return tuple(result)


def _copied_to(storage: torch.UntypedStorage, device: torch.device) -> torch.UntypedStorage:
    return _bytes_of(storage, storage.nbytes()).to(device, copy=True).untyped_storage()


def write_back(copies: Iterable[Tensor], originals: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """Bring originals to what has become of the copies that ``fresh`` made of them, numbers, sizes and strides.

    Returns the originals' storages by the address of their copies.
    """
    found: dict[int, torch.UntypedStorage] = {}
    for copy, original in zip(copies, originals, strict=True):
        source, target = _plain(copy).untyped_storage(), _plain(original).untyped_storage()
        if storage_key(source) not in found:
            found[storage_key(source)] = target
            if target.nbytes() < source.nbytes():
                target.resize_(source.nbytes())
            _bytes_of(target, source.nbytes()).copy_(_bytes_of(source, source.nbytes()))
        if (copy.size(), copy.stride()) != (original.size(), original.stride()):
            original.set_(target, copy.storage_offset(), copy.size(), copy.stride())
    return found


def pack(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Each distinct storage as a uint8 tensor, and for each tensor the JSON of its view."""
    names: dict[int, str] = {}
    storages: dict[str, torch.UntypedStorage] = {}
    needed: dict[str, int] = {}
    views: dict[str, Any] = {}
    for name, tensor in tensors.items():
        check_plain(tensor)
        plain = _plain(tensor)
        storage = plain.untyped_storage()
        key = names.setdefault(storage_key(storage), f"s{len(names)}")
        storages[key] = storage
        end = extent(plain.size(), plain.stride(), int(plain.storage_offset())) * plain.element_size()
        needed[key] = max(needed.get(key, 0), min(end, storage.nbytes()))
        views[name] = {
            "storage": key,
            "dtype": dtype_name(plain.dtype),
            "shape": list(plain.size()),
            "stride": list(plain.stride()),
            "offset": plain.storage_offset(),
            "conj": tensor.is_conj(),
            "neg": tensor.is_neg(),
        }
    data = {
        key: _bytes_of(storage, storage.nbytes() if storage.nbytes() <= WHOLE_STORAGE_BYTES else needed[key])
        for key, storage in storages.items()
    }
    return data, views


def unpack(storages: dict[str, Tensor], views: Any) -> dict[str, Tensor]:
    """Rebuild the tensors that ``pack`` described. Raises ``LayoutError`` for a view its storage cannot hold."""
    if not isinstance(views, dict):
        raise LayoutError("the inputs must be an object")
    return {name: _unpack_one(name, storages, view) for name, view in views.items()}


def _unpack_one(name: str, storages: dict[str, Tensor], view: Any) -> Tensor:
    keys = {"storage", "dtype", "shape", "stride", "offset", "conj", "neg"}
    if not isinstance(view, dict) or set(view) != keys:
        raise LayoutError(f"input {name!r} must be an object with the keys {', '.join(sorted(keys))}")
    data = storages.get(view["storage"]) if isinstance(view["storage"], str) else None
    if data is None:
        raise LayoutError(f"input {name!r} views the storage {str(view['storage'])[:40]!r}, which is not in the file")
    if data.dtype != torch.uint8 or data.dim() != 1:
        raise LayoutError(f"storage {view['storage']!r} is not a row of bytes")
    try:
        dtype = parse_dtype(view["dtype"])
    except ProgramError as error:
        raise LayoutError(f"input {name!r}: {error}") from error
    shape, stride, offset = view["shape"], view["stride"], view["offset"]
    sizes = (*_natural(shape, name), *_natural(stride, name), *_natural([offset], name))
    if len(shape) > MAX_DIMS:
        raise LayoutError(f"input {name!r} has {len(shape)} dims; a case has {MAX_DIMS} at most")
    if len(shape) != len(stride) or any(size >= 1 << 62 for size in sizes):
        raise LayoutError(f"input {name!r}: shape {shape} and stride {stride} do not agree")
    itemsize = dtype.itemsize
    if extent(shape, stride, offset) * itemsize > data.numel():
        held = data.numel() // itemsize
        raise LayoutError(f"input {name!r}: shape {shape}, stride {stride}, offset {offset} leave a storage of {held}")
    try:
        row = data if data.storage_offset() == 0 else data.clone()
        tensor = torch.empty(0, dtype=dtype).set_(row.untyped_storage(), offset, shape, stride)
        return flip_lazy_bits(tensor, conj=view["conj"], neg=view["neg"])
    except (RuntimeError, NotImplementedError) as error:
        raise LayoutError(f"input {name!r}: {error}") from error


def _natural(values: Any, name: str) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise LayoutError(f"input {name!r}: sizes, strides and offset must be whole numbers, not negative")
    return values
