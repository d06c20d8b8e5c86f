"""What a program asks of its tensors beside their values: strides, ``requires_grad``, a gradient. Each call asks again.

A graph of values has none of it, and Python decides by the answer. What was not asked may be anything.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NoReturn, TypeAlias

import torch
from torch.overrides import TorchFunctionMode

from torchstone.compiler._torch.modes import DisableTorchFunction
from torchstone.compiler._torch.tensors import HIDDEN_ATTRIBUTES
from torchstone.compiler.capture.refusals import refusing
from torchstone.compiler.capture.state import kinds
from torchstone.compiler.capture.state.checks import Found, State
from torchstone.compiler.capture.state.kinds import Only
from torchstone.compiler.capture.user_code import is_user_file
from torchstone.compiler.diagnostics import GuardError, Unsupported

# A leaf of the arguments by its number, or a tensor that the program holds.
Owner: TypeAlias = "int | torch.Tensor"

# What is asked, and what the answer for a result follows from, asked of each tensor that the program is given.
AUTOGRAD = frozenset({"requires_grad", "is_leaf", "grad_fn"})
LAYOUT = frozenset({"is_contiguous", "stride", "storage_offset", "dim_order", "is_conj", "is_neg"})
_PLACE = frozenset({"is_inference", "is_pinned", "is_shared", "name"})
_FOLLOWS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(AUTOGRAD, ("requires_grad",)),
    **dict.fromkeys(LAYOUT, ("stride", "storage_offset", "is_conj", "is_neg")),
    "is_inference": ("is_inference",),
}
# What differs from one call to the next, or tells of memory that a graph of values has not.
REFUSED = HIDDEN_ATTRIBUTES | {
    "__repr__", "__str__", "__reduce_ex__", "__reduce__",
    "const_data_ptr", "grad_dtype", "is_set_to", "output_nr", "retains_grad", "storage_type", "volatile",
}  # fmt: skip
# What leaves something behind on a tensor of the caller's.
_LEAVING = frozenset({"register_hook", "register_post_accumulate_grad_hook", "retain_grad", "share_memory_", "rename_"})
_OVERRIDES = sys.modules[TorchFunctionMode.__module__].__file__


@dataclass(frozen=True, slots=True)
class Fact:
    """What a tensor answered when the program was captured."""

    owner: Any  # a leaf's number, the places that hold a tensor, or a tensor that is in none
    name: str
    args: tuple[Any, ...]
    answer: Any


@dataclass(slots=True)
class Facts:
    """All that a program asked: ``facts``; in which ``modes`` of autograd; ``written`` says what it left on tensors."""

    facts: list[Fact] = field(default_factory=list)
    modes: dict[str, bool] = field(default_factory=dict)
    written: list[tuple[Any, bool]] = field(default_factory=list)
    distinct: list[Any] = field(default_factory=list)
    bare: list[Any] = field(default_factory=list)
    missed: Only = None
    _found: tuple[Found, dict[Any, Any]] | None = None

    def __bool__(self) -> bool:
        return bool(self.facts or self.modes or self.distinct or self.bare)

    @property
    def of_objects(self) -> bool:
        """Whether something is asked of a tensor in one of Python's objects."""
        owners = (
            *(fact.owner for fact in self.facts),
            *(owner for owner, _ in self.written),
            *self.distinct,
            *self.bare,
        )
        return any(isinstance(owner, tuple) for owner in owners)

    def check(self, leaves: Sequence[Any], state: State | None, found: Found | None) -> None:
        """GuardError where a tensor or a mode answers otherwise now: the leaves of a call, or what its objects hold."""
        for name, was in self.modes.items():
            if MODES[name]() != was:
                raise GuardError(f"torch.{name}() was {was} when compiled, and the program asks; it is {not was}")
        for fact in self.facts:
            tensor = self._find(fact.owner, leaves, state, found)
            if isinstance(tensor, torch.Tensor) and (now := ask(tensor, fact.name, fact.args)) != fact.answer:
                if fact.name == "grad":
                    why = "looks at gradients, and was compiled when there were none: zero_grad() first"
                    raise GuardError(f"{_show(fact.owner, state)}: the program {why}")
                what = f"{fact.name} of {_show(fact.owner, state)}"
                raise GuardError(f"{what} was {fact.answer} when compiled, and the program asks; it is {now}")
        for owner in self.bare:
            tensor = self._find(owner, leaves, state, found)
            if isinstance(tensor, torch.Tensor) and vars(tensor) and (new := kinds.TENSOR.entries(tensor, self.missed)):
                raise GuardError(f"{_show(owner, state)}.{next(iter(new))} was not there when compiled")
        if self.distinct:
            seen: dict[int, Any] = {}
            for owner in self.distinct:
                other = seen.setdefault(id(self._find(owner, leaves, state, found)), owner)
                if other is not owner:
                    one, two = _show(other, state), _show(owner, state)
                    raise GuardError(
                        f"{one} and {two} were two tensors when compiled, are one, and the program can tell"
                    )

    def leave(self, leaves: Sequence[Any], state: State | None, found: Found | None) -> None:
        """Do again what the program does to tensors beside writing values."""
        for owner, wanted in self.written:
            self._find(owner, leaves, state, found).requires_grad_(wanted)

    def _find(self, owner: Any, leaves: Sequence[Any], state: State | None, found: Found | None) -> Any:
        if isinstance(owner, int):
            return leaves[owner]
        if isinstance(owner, torch.Tensor) or state is None or found is None:
            return owner
        if self._found is None or self._found[0] is not found:
            self._found = found, {}
        known = self._found[1]
        if owner not in known:
            known[owner] = state.tensor(found, owner)
        return known[owner]


def _show(owner: Any, state: State | None) -> str:
    if isinstance(owner, int):
        return f"argument {owner}"
    return "a tensor that the program holds" if isinstance(owner, torch.Tensor) or not state else state.show(owner[0])


MODES: Mapping[str, Callable[[], bool]] = {
    "is_grad_enabled": torch.is_grad_enabled,
    "is_inference_mode_enabled": torch.is_inference_mode_enabled,
}


def ask(tensor: torch.Tensor, name: str, args: tuple[Any, ...] = ()) -> Any:
    """Return what a tensor answers; of what autograd keeps, whether there is anything."""
    if name == "class":
        return "a parameter" if isinstance(tensor, torch.nn.Parameter) else "no parameter"
    found = getattr(tensor, name)
    if name in ("grad_fn", "grad"):
        return "None" if found is None else "there"
    return found(*args) if callable(found) else found


@refusing(Unsupported)
def _refuse(why: str, op: str) -> NoReturn:
    raise Unsupported(why, stage="capture", op=op)


class Asking(TorchFunctionMode):
    """Notes what the user's code asks of tensors. ``owner`` says whose tensor is one that the program was given.

    ``original`` gives the caller's own tensor of an owner: some answers are only known of that.
    """

    def __init__(
        self, owner: Callable[[torch.Tensor], Owner | None], original: Callable[[Owner], torch.Tensor]
    ) -> None:
        super().__init__()
        self._owner, self._original = owner, original
        self.asked: dict[tuple[Any, str, tuple[Any, ...]], tuple[Owner, Any]] = {}
        self.followed: set[str] = set()
        self.written: dict[Any, tuple[Owner, bool]] = {}
        self._restored: list[tuple[torch.Tensor, bool]] = []
        self._set: set[Any] = set()  # whose gradient is set first

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        with DisableTorchFunction():
            for tensor, was in reversed(self._restored):
                tensor.requires_grad_(was)
        self._restored.clear()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            name = getattr(func.__self__, "__name__", "") + ("=" if name == "__set__" else "")
        kwargs = kwargs or {}
        if name == "grad=" and (given := self._owner(args[0])) is not None:
            self._set.add(_key(given))
        if not (name in _WATCHED and args and isinstance(args[0], torch.Tensor) and _asked_by_user(func)):
            return func(*args, **kwargs)
        with DisableTorchFunction():
            tensor, owner = args[0], self._owner(args[0])
            text = name == "__format__" and (tensor.dim() > 0)
            if name in REFUSED or text:
                why = f"the program asks for Tensor.{name}, which may be another at each call"
                _refuse(why, f"Tensor.{name}")
            if owner is not None and (name in _LEAVING or name.endswith("hooks=")):
                _refuse(f"Tensor.{name}() of a tensor that the program is given", name)
        if name in ("requires_grad_", "requires_grad="):
            wanted = bool(args[1] if len(args) > 1 else kwargs.get("requires_grad", True))
            return func(*args, **kwargs) if owner is None else self._write(func, tensor, owner, wanted)
        if name == "detach_":
            if owner is not None and self._answer(tensor, owner, "requires_grad", (), tensor.requires_grad):
                why = "detach_() of a tensor that the program is given takes it out of the caller's graph; use detach()"
                _refuse(why, "Tensor.detach_")
            return func(*args, **kwargs)
        out = func(*args, **kwargs)
        if name == "grad":  # WatchGradients has seen that there was none
            if owner is not None and (key := _key(owner)) not in self._set:
                self.asked[key, name, ()] = owner, "None"
            return out
        if name in _FOLLOWS or name in _PLACE:
            if owner is None:
                self.followed.update(_FOLLOWS.get(name, ()))
                return out
            return self._answer(tensor, owner, name, (*args[1:], *kwargs.values()), out)
        return out

    def _answer(self, tensor: torch.Tensor, owner: Owner, name: str, args: tuple[Any, ...], out: Any) -> Any:
        key = _key(owner)
        with DisableTorchFunction():
            theirs = self._original(owner)
            answer = ask(theirs, name, args)
            if (key, name, args) not in self.asked and not (name == "requires_grad" and key in self.written):
                self.asked[key, name, args] = owner, answer
            if name == "grad_fn" and out is None and answer != "None" and key not in self.written:
                _refuse("the program asks for the grad_fn of what it is given", name)
            if name == "is_leaf":
                return out and answer
        symbolic = any(isinstance(s, torch.SymInt) for s in (*tensor.shape, *tensor.stride()))
        return answer if (name in LAYOUT or name in _PLACE) and not symbolic else out

    def _write(self, func: Any, tensor: torch.Tensor, owner: Owner, wanted: bool) -> Any:
        with DisableTorchFunction():
            if tensor is self._original(owner):
                self._restored.append((tensor, tensor.requires_grad))
            tensor.requires_grad_(wanted)
            self.written[_key(owner)] = owner, wanted
        return tensor

    def found(
        self,
        given: Sequence[Owner],
        place: Callable[[Owner], Any],
        modes: Sequence[str] = (),
        *,
        classes: bool = False,
        identity: bool = False,
        missed: Only = frozenset(),
    ) -> Facts:
        """Return what was asked. ``given`` are all of its tensors, ``place`` says where a call has one.

        ``modes``, ``classes`` and ``identity`` are what the program may ask where no mode sees it, ``missed`` the
        attributes that it may look for and not find.
        """
        facts = [Fact(place(owner), name, args, answer) for (_, name, args), (owner, answer) in self.asked.items()]
        for name in sorted(self.followed | ({"class"} if classes else set())):
            facts += [Fact(place(owner), name, (), ask(self._original(owner), name)) for owner in given]
        asked = set(modes)
        if "requires_grad" in self.followed:
            asked.add("is_grad_enabled")
        if "is_inference" in self.followed:
            asked.add("is_inference_mode_enabled")
        written = [(place(owner), wanted) for owner, wanted in self.written.values()]
        distinct = [place(owner) for owner in given] if identity and len(given) > 1 else []
        bare = (
            []
            if missed is not None and not missed
            else [place(owner) for owner in given if not kinds.TENSOR.entries(self._original(owner), None)]
        )
        return Facts(facts, {name: MODES[name]() for name in sorted(asked)}, written, distinct, bare, missed)


_WATCHED = frozenset(
    {*_FOLLOWS, *_PLACE, *REFUSED, *_LEAVING, "grad", "detach_", "requires_grad_", "requires_grad=", "__format__"}
    | {"_backward_hooks=", "_post_accumulate_grad_hooks="}
)


def _key(owner: Owner) -> Any:
    return owner if isinstance(owner, int) else ("held", id(owner))


def _asked_by_user(func: Any) -> bool:
    """Say whether it is the user's code that calls a function of PyTorch's, which may be one in Python."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_filename == _OVERRIDES or frame.f_code is getattr(func, "__code__", None)
    ):
        frame = frame.f_back
    return frame is not None and is_user_file(frame.f_code.co_filename)
