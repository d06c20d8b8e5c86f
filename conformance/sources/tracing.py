"""Turning a call, or a Python function that makes calls, into a program."""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from torchstone.conformance.oracle.equality import close, equal
from torchstone.conformance.oracle.random.unwritten import gives_unwritten
from torchstone.conformance.program.call_targets import name_of
from torchstone.conformance.program.literals import ProgramError, Ref, encode_literal, leaf_paths, leaves
from torchstone.conformance.program.program import Call, Program
from torchstone.conformance.program.tensor_storage import LayoutError, check_plain, copy_tensors


class NotExpressible(Exception):
    """A call that a program cannot hold; the message is the reason."""


class Inputs:
    """Names tensors as they are met: the same tensor object is the same input, or the result it was bound to."""

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._refs: dict[int, tuple[Tensor, Ref]] = {}  # holds the tensor, so that its id stays its own

    def bind(self, tensor: Tensor, ref: Ref) -> None:
        """From now on ``tensor`` is ``ref``."""
        self._refs[id(tensor)] = (tensor, ref)

    def find(self, tensor: Tensor) -> Ref | None:
        """What the tensor is called, if it has been met."""
        known = self._refs.get(id(tensor))
        return known[1] if known else None

    def ref(self, tensor: Tensor) -> Ref:
        """What the tensor is called; one not met before becomes an input."""
        found = self.find(tensor)
        if found is None:
            try:
                check_plain(tensor)
            except LayoutError as error:
                raise NotExpressible(str(error)) from error
            found = Ref(f"x{len(self.tensors)}")
            self.tensors[found.name] = tensor.detach()
            self.bind(tensor, found)
        return found

    def literal(self, value: Any) -> Any:
        """The value as a program's literal, tensors replaced by references."""
        if isinstance(value, Tensor):
            return self.ref(value)
        if value is None or type(value) in (bool, int, float, str, complex):
            return value
        if isinstance(value, list):
            return [self.literal(item) for item in value]
        if isinstance(value, tuple):
            return tuple([self.literal(item) for item in value])
        if isinstance(value, dict):
            return {key: self.literal(item) for key, item in value.items()}
        if isinstance(value, slice):
            return slice(self.literal(value.start), self.literal(value.stop), self.literal(value.step))
        if isinstance(value, numbers.Number):  # NumPy's scalars
            return _python_number(value)
        try:
            encode_literal(value)
        except ProgramError as error:
            raise NotExpressible(f"argument: {error}") from error
        return value


def _python_number(value: Any) -> Any:
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    return complex(value)


def single_call(target: str, args: Iterable[Any], kwargs: dict[str, Any]) -> tuple[Program, dict[str, Tensor]]:
    """The program of one call. Raises ``NotExpressible``."""
    inputs = Inputs()
    call = Call(target, tuple(inputs.literal(arg) for arg in args), inputs.literal(kwargs), "r0")
    return Program(tuple(inputs.tensors), (call,), Ref("r0")), inputs.tensors


class _Recorder(TorchFunctionMode):
    """Records the outermost torch functions called: inside one of them the mode is off."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.calls: list[Call] = []
        self.results: list[Any] = []
        self.draws = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        result_name = f"r{len(self.calls)}"
        target = name_of(func)
        if target is None:
            out = func(*args, **kwargs)
            if any(isinstance(leaf, Tensor) for leaf in leaves(out)):
                name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or repr(func)
                raise NotExpressible(f"calls {name}, which has no public name a program may use")
            return out
        call = Call(target, self.inputs.literal(tuple(args)), self.inputs.literal(dict(kwargs)), result_name)
        state = torch.get_rng_state()
        out = func(*args, **kwargs)
        self.draws = self.draws or not torch.equal(state, torch.get_rng_state())
        self._append(call, out)
        return out

    def manual_seed(self, original: Callable[[int], Any], seed: int) -> Any:
        """``torch.manual_seed`` goes past the mode, and programs must hold it."""
        self._append(Call("torch.manual_seed", (int(seed),), {}, f"r{len(self.calls)}"), None)
        return original(seed)

    def _append(self, call: Call, out: Any) -> None:
        self.calls.append(call)
        self.results.append(out)
        for path, leaf in leaf_paths(out):
            if isinstance(leaf, Tensor) and self.inputs.find(leaf) is None:
                self.inputs.bind(leaf, Ref(call.result, path))


def record(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Program, dict[str, Tensor]]:
    """Run a Python function and write down what it calls on these arguments.

    What Python computes between the calls is frozen at these arguments' values. The program is run once and must give
    what the function gave. Raises ``NotExpressible``; exceptions of the function itself pass through.
    """
    inputs = Inputs()
    inputs.literal((args, kwargs))  # names the inputs in the order of the arguments
    before = dict(zip(inputs.tensors, copy_tensors(inputs.tensors.values()), strict=True))
    recorder = _Recorder(inputs)
    seed = functools.partial(recorder.manual_seed, torch.manual_seed)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), mock.patch.object(torch, "manual_seed", seed), recorder:
        out = function(*args, **kwargs)
    if inputs.tensors.keys() != before.keys():
        raise NotExpressible("uses a tensor that is neither an argument nor the result of a call")
    outputs = _outputs(out, recorder)
    calls = [call for call in _live(recorder.calls, outputs) if recorder.draws or call.target != "torch.manual_seed"]
    program = Program(tuple(before), tuple(calls), outputs)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        again = program(*copy_tensors(before.values()))
    if not any(map(gives_unwritten, calls)) and not _alike(out, again):
        raise NotExpressible("does more than its calls to torch show: the recorded calls give another result")
    return program, before


def _outputs(out: Any, recorder: _Recorder) -> Any:
    """The tree of references to what the function returned."""
    for call, result in zip(reversed(recorder.calls), reversed(recorder.results), strict=True):
        if result is out and not isinstance(out, Tensor):
            return Ref(call.result)
    if isinstance(out, Tensor):
        found = recorder.inputs.find(out)
        if found is None:
            raise NotExpressible("returns a tensor made outside the recorded calls")
        return found
    if isinstance(out, tuple):
        return tuple([_outputs(item, recorder) for item in out])
    if isinstance(out, list):
        return [_outputs(item, recorder) for item in out]
    if isinstance(out, dict) and all(isinstance(key, str) for key in out):
        return {key: _outputs(item, recorder) for key, item in out.items()}
    raise NotExpressible(f"returns a {type(out).__name__} that no recorded call gave")


def _live(calls: list[Call], outputs: Any) -> list[Call]:
    """The calls that the outputs depend on, or that mutate something."""
    needed = {leaf.name for leaf in leaves(outputs)}
    kept: list[Call] = []
    for call in reversed(calls):
        if call.result in needed or call.writes or call.target == "torch.manual_seed":
            kept.append(call)
            needed.update(ref.name for ref in call.refs())
    return kept[::-1]


def _alike(left: Any, right: Any) -> bool:
    """Whether two runs of the same calls agree: not to the last bit, LAPACK may differ there from run to run."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        if left.dtype != right.dtype or left.shape != right.shape or left.layout != right.layout:
            return False
        wide = torch.complex128 if left.is_complex() else torch.float64 if left.is_floating_point() else left.dtype
        return close(left.to_dense().to(wide), right.to_dense().to(wide), 1e-2, 1e-6)
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(map(_alike, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_alike(left[key], right[key]) for key in left)
    return equal(left, right)
