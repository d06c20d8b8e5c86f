"""The doors through which values leave a program unseen by dispatch: some are watched, the others refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from torchstone.compiler._torch.modes import unseen_by_dispatch
from torchstone.compiler._torch.operators import assert_async
from torchstone.compiler._torch.tensors import swapping_replaced
from torchstone.compiler.capture.memory.memory_calls import MemoryCalls
from torchstone.compiler.capture.refusals import refusing
from torchstone.compiler.capture.trace.tensor_lists import MAKERS, holds_tensor, listed, made_of_list
from torchstone.compiler.diagnostics import Unsupported

# The longest tensor that is read into a list: each number of it is an op or two.
_LONGEST_LIST = 64
# What PyTorch says where its C++ asks a fake tensor for its memory.
_NO_MEMORY = "its data is not allocated yet"


@contextlib.contextmanager
def no_back_doors() -> Iterator[None]:
    """Refuse functions that no mode sees.

    ``torch.utils.swap_tensors`` makes other tensors of two without any op; ``torch.initial_seed`` and ``torch.seed``
    tell of a generator that is another at each call.
    """
    generator, weakrefs = torch.random.default_generator, torch.utils.weakref
    torch.random.default_generator = _Generator()
    # swap_tensors asks for weak references first, and ``MemoryCalls`` has some.
    torch.utils.weakref = SimpleNamespace(getweakrefs=_refuse_swap)
    try:
        with swapping_replaced(_refuse_swap):
            yield
    finally:
        torch.random.default_generator, torch.utils.weakref = generator, weakrefs


class _Generator:
    """The default generator, without its seed."""

    @refusing(Unsupported)
    def __getattr__(self, name: str) -> Any:
        if name in ("initial_seed", "seed"):
            raise Unsupported(f"torch.{name}() takes the seed of the caller's generator", stage="capture")
        return getattr(torch.default_generator, name)


@refusing(Unsupported)
def _refuse_swap(*_: Any) -> None:
    raise Unsupported("swap_tensors gives tensors other memory; write to them with copy_", stage="capture")


class NoEscape(TorchFunctionMode):
    """Has Python read numbers one by one, as dispatch sees it, and refuses what reads memory.

    ``asked(name)`` is told when Python asks a tensor for a number by this method. ``passing``
    gives the floats that stand for run-time ones in a call of a function of ``PASSING``. ``memory`` makes the calls.
    """

    def __init__(
        self,
        memory: MemoryCalls | None = None,
        asked: Callable[[str], None] = lambda name: None,
        passing: Passing | None = None,
    ) -> None:
        super().__init__()
        self._memory, self._asked, self._passing = memory or MemoryCalls(), asked, passing

    # Functions in C++ that take a double, and pass it on to their op as it is.
    PASSING = frozenset(
        {
            "batch_norm", "group_norm", "huber_loss", "instance_norm", "layer_norm", "logit", "nan_to_num",
            "nan_to_num_", "smooth_l1_loss",
        }
    )  # fmt: skip

    # Arguments whose memory PyTorch reads in C++, by place or by name.
    READ: Mapping[str, tuple[Any, ...]] = {
        "tensor_split": (1, "indices_or_sections", "tensor_indices_or_sections"),
        "ctc_loss": (2, 3, "input_lengths", "target_lengths"),
    }
    PACKED = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu", "_pad_packed_sequence"})
    VALUE_LEAKS = frozenset({"numpy", "__array__", "data_ptr", "untyped_storage", "storage", "__dlpack__", "tolist"})
    NUMBERS = frozenset({"__float__", "__int__", "__index__", "__bool__", "__complex__", "item"})
    INDEXING = frozenset({"__getitem__", "__setitem__"})

    @refusing(Unsupported)
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self._asked(name)
        if name == "tolist" and args[0].numel() <= _LONGEST_LIST:
            return _list(args[0])
        if name in MAKERS and (made := made_of_list(func, name, args, kwargs or {})) is not NotImplemented:
            return made
        if name in self.NUMBERS and unseen_by_dispatch():
            why = "PyTorch's C++ makes a tensor of the numbers of others; use torch.tensor, which is seen"
            raise Unsupported(why, stage="capture", op=f"Tensor.{name}")
        if name in self.VALUE_LEAKS:
            raise Unsupported(
                f"Tensor.{name}() takes values out of the program while it is captured",
                stage="capture",
                op=f"Tensor.{name}",
            )
        if name in self.PACKED and isinstance(args[1], torch.Tensor) and args[1].dtype is torch.int64:
            raise Unsupported("a packed sequence: PyTorch reads its batch sizes unseen", stage="capture", op=name)
        if name in self.READ:
            kwargs = {k: _numbers(v) if k in self.READ[name] else v for k, v in (kwargs or {}).items()}
            args = [_numbers(v) if i in self.READ[name] else v for i, v in enumerate(args)]
        if name in self.PASSING and self._passing is not None:
            return self._with_stand_ins(func, args, kwargs or {})
        if name in self.INDEXING and isinstance(args[1], torch.SymInt) and args[0].dim():
            part = args[0].select(0, args[1])
            return part if name == "__getitem__" else func(part, ..., *args[2:])
        if name == "one_hot":
            _check_classes(*args, **(kwargs or {}))
        if name in self.INDEXING:
            args = (*_selected(args[0], args[1]), *args[2:])
        try:
            return self._memory.make(func, args, kwargs)
        except RuntimeError as error:
            if _NO_MEMORY not in str(error):
                raise
            why = f"{name}: PyTorch's C++ reads or writes the memory of a tensor itself"
            raise Unsupported(why, stage="capture", op=name) from error

    def _with_stand_ins(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        assert self._passing is not None
        given = {id(v): self._passing.stand_in(v) for v in (*args, *kwargs.values()) if isinstance(v, torch.SymFloat)}
        out = func(*(given.get(id(v), v) for v in args), **{k: given.get(id(v), v) for k, v in kwargs.items()})
        for near in given.values():
            self._passing.was_passed(near)
        return out


class Passing(Protocol):
    """What knows the floats that stand for run-time ones."""

    def stand_in(self, number: Any) -> Any:
        """Return the float that stands for a number."""

    def was_passed(self, near: Any) -> None:
        """Raise unless an op was called with a float that stands for a number."""


def _check_classes(x: Any, num_classes: int = -1) -> None:
    """Record the checks of ``one_hot``, which PyTorch's C++ leaves out where a tensor has no memory yet."""
    if x.dtype is torch.int64:
        assert_async((x >= 0).all(), "Class values must be non-negative.")
        if num_classes > 0:
            assert_async((x < num_classes).all(), "Class values must be smaller than num_classes.")


def _numbers(tensor: Any) -> Any:
    """Read a tensor's numbers."""
    if not isinstance(tensor, torch.Tensor):
        return tensor
    return int(tensor) if tensor.dim() == 0 else [int(number) for number in tensor.unbind()]


def _list(tensor: torch.Tensor) -> Any:
    return tensor.item() if tensor.dim() == 0 else [_list(part) for part in tensor.unbind()]


def _selected(x: torch.Tensor, index: Any) -> tuple[torch.Tensor, Any]:
    """Read the 0-d integers among indices, which eager takes for Python's, and whose numbers it reads in C++.

    Return what is left to be indexed, of one place along these dims, and the indices that do it.
    """
    if holds_tensor(index):  # which eager takes for a tuple
        index = tuple(index)
    entries = list(index) if isinstance(index, tuple) else [index]
    entries = [listed(entry) if holds_tensor(entry) else entry for entry in entries]
    for place, entry in enumerate(entries):
        if not _is_number(entry):
            continue
        before, after = entries[:place], entries[place + 1 :]
        if any(e is Ellipsis for e in before):
            dim = x.dim() - 1 - sum(map(_dims, after))
        else:
            dim = sum(map(_dims, before))
        if not 0 <= dim < x.dim():
            return x, index
        chosen: Any = entry.item()
        x = x.select(dim, chosen).unsqueeze(dim)
        entries[place] = 0
    return x, tuple(entries) if isinstance(index, tuple) else entries[0]


def _is_number(entry: Any) -> bool:
    integer = isinstance(entry, torch.Tensor) and not entry.dtype.is_floating_point and not entry.dtype.is_complex
    return integer and entry.dim() == 0 and entry.dtype not in (torch.bool, torch.uint8)


def _dims(entry: Any) -> int:
    """Return how many dims of a tensor an index is for."""
    if entry is None or entry is Ellipsis or isinstance(entry, bool):
        return 0
    mask = isinstance(entry, torch.Tensor) and entry.dtype in (torch.bool, torch.uint8)
    return entry.dim() if mask else 1
