"""A program: a short list of calls to public PyTorch names, as data.

It is a callable on tensors, has a JSON form, and holds no code: reading one from a stranger resolves names against the
allowlist of ``torchstone.conformance.program.call_targets`` and evaluates nothing.
"""

from __future__ import annotations

import contextlib
import json
import keyword
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch

from torchstone.conformance.program.call_targets import resolve
from torchstone.conformance.program.literals import (
    TAGS,
    Nested,
    ProgramError,
    Ref,
    decode_literal,
    encode_literal,
    leaves,
    map_leaves,
)

__all__ = ["Call", "Program", "ProgramError", "Ref"]


MAX_NAME = 500

Perform: TypeAlias = Callable[[int, Callable[..., Any], Any, Any], Any]
"""Makes a call: given its place in the program, the function, the positional and the named arguments."""


GRADIENTS = "torch.autograd.grad"
"""What takes gradients: of results, with respect to inputs, of cotangents."""


def is_name(text: str) -> bool:
    """Whether Python takes the text for a name, and for this one: it reads ``ﬁ`` as ``fi``."""
    plain = text.isidentifier() and not keyword.iskeyword(text) and text != "__debug__"
    return plain and (text.isascii() or unicodedata.normalize("NFKC", text) == text)


@dataclass(frozen=True)
class Call:
    """``result = target(*args, **kwargs)``, where any leaf of the arguments may be a ``Ref``."""

    target: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: str

    @property
    def operator(self) -> str:
        """The name without namespace, overload and in-place underscore: ``add`` of ``torch.ops.aten.add_.Tensor``.

        An op that is not PyTorch's has its namespace in front: ``mylib::add`` has nothing in common with ``add``.
        """
        if not self.target.startswith("torch."):
            return self.target
        if self.target.startswith("torch.ops.") and not self.target.startswith("torch.ops.aten."):
            return "::".join(self.target.split(".")[2:4])
        return self._name.rstrip("_")

    @property
    def writes(self) -> bool:
        """Whether its name or arguments say that it changes a tensor: ``add_``, ``__iadd__``, ``__setitem__``, ``out``,
        ``inplace``."""
        name = self._name
        in_place = (name.endswith("_") and not name.endswith("__")) or name == "__setitem__"
        in_place = in_place or (name.startswith("__i") and name != "__invert__")
        return in_place or "out" in self.kwargs or self.kwargs.get("inplace") is True

    @property
    def _name(self) -> str:
        return self.target.split(".")[3] if self.target.startswith("torch.ops.") else self.target.rpartition(".")[2]

    def refs(self) -> list[Ref]:
        """The references among the arguments, in order."""
        return [leaf for leaf in leaves([self.args, self.kwargs]) if isinstance(leaf, Ref)]

    def bodies(self) -> list[Program]:
        """The programs among the arguments, in order."""
        return [leaf for leaf in leaves([self.args, self.kwargs]) if isinstance(leaf, Program)]

    def map_arguments(self, change: Callable[[Any], Any], *, nested: bool = True) -> Call:
        """The call with each leaf of its arguments replaced by ``change(leaf)``, positional ones first, in order.

        A leaf is whatever is no list, tuple, dict or slice: a number, a dtype, a ``Ref``. With ``nested=False`` each
        argument is given as a whole, so that a list of sizes can be told from a number.
        """
        if nested:
            return replace(self, args=map_leaves(self.args, change), kwargs=map_leaves(self.kwargs, change))
        args = tuple(map(change, self.args))
        return replace(self, args=args, kwargs={key: change(value) for key, value in self.kwargs.items()})

    def __str__(self) -> str:
        parts = [_show(arg) for arg in self.args] + [f"{key}={_show(value)}" for key, value in self.kwargs.items()]
        return f"{self.result} = {self.target}({', '.join(parts)})"


@dataclass(frozen=True)
class Program(Nested):
    """Calls in order over named tensor inputs; ``outputs`` is a tree of ``Ref``.

    An argument of a call may be a program: a branch of ``torch.cond``, or what ``torch.while_loop`` repeats. It sees
    the tensors that it is given, and nothing else.

    Calling it with one tensor per input runs the calls (in-place ones mutate the arguments) and returns ``outputs``
    with each reference replaced by its value. Raises ``ProgramError`` at construction when a name is unknown or used
    before it is defined.
    """

    inputs: tuple[str, ...]
    calls: tuple[Call, ...]
    outputs: Any
    _steps: tuple[tuple[Callable[..., Any], Call], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        defined = set(self.inputs)
        if len(defined) != len(self.inputs):
            raise ProgramError(f"duplicate input name in {', '.join(self.inputs)}")
        for call in self.calls:
            for ref in call.refs():
                if ref.name not in defined:
                    raise ProgramError(f"{call}: {ref.name!r} is used before it is defined")
            if call.result in defined:
                raise ProgramError(f"{call}: {call.result!r} is defined twice")
            defined.add(call.result)
        for name in defined:
            if not is_name(name) or name.startswith("__"):
                raise ProgramError(f"{name!r} is not a usable name")
        for leaf in leaves(self.outputs):
            if not isinstance(leaf, Ref):
                raise ProgramError(f"outputs hold {leaf!r}, which is not a reference")
            if leaf.name not in defined:
                raise ProgramError(f"output {leaf.name!r} is not defined")
        object.__setattr__(self, "_steps", tuple((resolve(call.target), call) for call in self.calls))

    def __call__(self, *tensors: Any) -> Any:
        return self.run(tensors)

    def run(self, tensors: tuple[Any, ...], perform: Perform | None = None) -> Any:
        """What the program gives. ``perform`` makes each call, given its place, its function and its arguments."""
        if len(tensors) != len(self.inputs):
            raise TypeError(f"the program takes {len(self.inputs)} tensors, got {len(tensors)}")
        env = dict(zip(self.inputs, tensors, strict=True))
        with torch.enable_grad() if self.differentiates else contextlib.nullcontext():
            for index, (function, call) in enumerate(self._steps):
                args, kwargs = _fill(call.args, env), _fill(call.kwargs, env)
                env[call.result] = (
                    function(*args, **kwargs) if perform is None else perform(index, function, args, kwargs)
                )
        return _fill(self.outputs, env)

    def rewrite(
        self,
        change: Callable[[Call], Call | None],
        *,
        outputs: Callable[[Any], Any] | None = None,
        inputs: Iterable[str] | None = None,
        before: Iterable[Call] = (),
    ) -> Program:
        """The program with each call replaced by ``change(call)``; ``None`` drops the call.

        ``outputs`` replaces the leaves of the outputs, ``inputs`` the names of the inputs, and the calls ``before`` go
        first. Whoever drops or renames a result has to change the references to it as well. This is the one way to
        make a program out of another, so what comes out is checked like any other: raises ``ProgramError`` for a
        reference to what is not defined.

            program.rewrite(lambda call: call.map_arguments(widen))
            program.rewrite(lambda call: None if call.target == "torch.manual_seed" else call)
        """
        calls = [changed for call in self.calls if (changed := change(call)) is not None]
        return Program(
            self.inputs if inputs is None else tuple(inputs),
            (*before, *calls),
            self.outputs if outputs is None else map_leaves(self.outputs, outputs),
        )

    def rename(self, names: Mapping[str, str]) -> Program:
        """The program with inputs and results called by other names, where ``names`` has one for them."""

        def renamed(leaf: Any) -> Any:
            return Ref(names.get(leaf.name, leaf.name), leaf.path) if isinstance(leaf, Ref) else leaf

        return self.rewrite(
            lambda call: replace(call.map_arguments(renamed), result=names.get(call.result, call.result)),
            outputs=renamed,
            inputs=(names.get(name, name) for name in self.inputs),
        )

    @property
    def every_call(self) -> Iterator[Call]:
        """The calls, each followed by those of the programs that it is given."""
        for call in self.calls:
            yield call
            for body in call.bodies():
                yield from body.every_call

    @property
    def differentiates(self) -> bool:
        """Whether a call takes gradients."""
        return any(call.target == GRADIENTS for call in self.calls)

    def fill(self, value: Any, tensors: tuple[Any, ...]) -> Any:
        """``value`` with each reference to an input replaced by the tensor given for it."""
        return _fill(value, dict(zip(self.inputs, tensors, strict=True)))

    def __hash__(self) -> int:
        return hash(self.to_json())

    def __str__(self) -> str:
        return "\n".join([*(str(call) for call in self.calls), f"return {_show(self.outputs)}"])

    def to_json(self) -> str:
        """The program as canonical JSON: equal programs give equal text."""
        return json.dumps(self.to_data(), separators=(",", ":"), allow_nan=False)

    def to_data(self) -> dict[str, Any]:
        """The program as JSON values."""
        calls = [
            {
                "target": call.target,
                "args": [encode_literal(arg) for arg in call.args],
                "kwargs": {key: encode_literal(value) for key, value in call.kwargs.items()},
                "result": call.result,
            }
            for call in self.calls
        ]
        return {"inputs": list(self.inputs), "calls": calls, "outputs": encode_literal(self.outputs)}

    @classmethod
    def from_json(cls, text: str) -> Program:
        """Read what ``to_json`` wrote. Raises ``ProgramError`` on anything else."""
        try:
            return cls.from_data(json.loads(text))
        except (json.JSONDecodeError, RecursionError) as error:
            raise ProgramError(f"not JSON: {error}") from error

    @classmethod
    def from_data(cls, data: Any, depth: int = 0) -> Program:
        """Read what ``to_data`` gave. Raises ``ProgramError`` on anything else; ``depth`` counts what it lies in."""
        body = _object(data, {"inputs", "calls", "outputs"}, "a program")
        inputs = tuple(_text(name, "an input name") for name in _list(body["inputs"], "inputs"))
        calls = []
        for item in _list(body["calls"], "calls"):
            call = _object(item, {"target", "args", "kwargs", "result"}, "a call")
            if not isinstance(call["kwargs"], dict):
                raise ProgramError("a call's kwargs must be an object")
            calls.append(
                Call(
                    _text(call["target"], "a target"),
                    tuple(decode_literal(arg, depth) for arg in _list(call["args"], "args")),
                    {_text(key, "a keyword"): decode_literal(value, depth) for key, value in call["kwargs"].items()},
                    _text(call["result"], "a result name"),
                )
            )
        return cls(inputs, tuple(calls), decode_literal(body["outputs"]))


TAGS["program"] = lambda body, depth: Program.from_data(body, depth + 1)


def _fill(value: Any, env: dict[str, Any]) -> Any:
    """``value`` with each reference replaced by what it names. Written plainly, so that tracing compilers follow it."""
    if isinstance(value, Ref):
        found = env[value.name]
        for step in value.path:
            found = found[step]
        return found
    if isinstance(value, tuple):
        return tuple([_fill(item, env) for item in value])
    if isinstance(value, list):
        return [_fill(item, env) for item in value]
    if isinstance(value, dict):
        return {key: _fill(item, env) for key, item in value.items()}
    if isinstance(value, slice):
        return slice(_fill(value.start, env), _fill(value.stop, env), _fill(value.step, env))
    return value


def _show(value: Any) -> str:
    """A literal as a person reads it: references bare, everything else by its repr."""
    if isinstance(value, Ref):
        return str(value)
    if isinstance(value, tuple):
        return "(" + ", ".join(_show(item) for item in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_show(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_show(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Program):
        return f"({', '.join(value.inputs)}) -> {{{'; '.join(str(value).splitlines())}}}"
    if isinstance(value, slice):
        return f"slice({_show(value.start)}, {_show(value.stop)}, {_show(value.step)})"
    return repr(value)


def _object(data: Any, keys: set[str], what: str) -> dict[str, Any]:
    if not isinstance(data, dict) or set(data) != keys:
        raise ProgramError(f"{what} must be an object with the keys {', '.join(sorted(keys))}")
    return data


def _list(data: Any, what: str) -> list[Any]:
    if not isinstance(data, list):
        raise ProgramError(f"{what} must be a list")
    return data


def _text(data: Any, what: str) -> str:
    if not isinstance(data, str):
        raise ProgramError(f"{what} must be a string, got {str(data)[:80]}")
    if len(data) > MAX_NAME:
        raise ProgramError(f"{what} has {len(data):,} characters; at most {MAX_NAME} can be used")
    return data
