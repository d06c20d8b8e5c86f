"""Calls that compute another function of an operand of another dtype: the float64 run has to be told eager's.

``rms_norm`` adds ``finfo(dtype).eps``, ``pinv`` leaves out what lies below it: left to itself, the float64 run computes
another function, and absolves who computes that one. The defaults are PyTorch's, as it documents them. So does a view
of the bits as another dtype (``bits``). And a conversion to float64 copies float32 numbers, but gives those of float64
as they are: what is written to the one later on is not in the other.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from torchstone.compiler._torch.pytrees import tree_map_only
from torchstone.compiler._torch.tensors import storage_key
from torchstone.conformance.oracle.op_traits.references import DEFAULTS_BY_DTYPE
from torchstone.conformance.oracle.op_traits.trait import Implementations
from torchstone.conformance.oracle.pytree import flatten
from torchstone.conformance.oracle.reference.bits import Alias, reads_bits, viewed
from torchstone.conformance.oracle.reference.widen import viewed_as
from torchstone.conformance.program.program import Call, Perform, Program


@dataclass(frozen=True)
class _Rule:
    """``names``: of the arguments that may be given by position. ``missing`` gives what a call leaves out, by name,
    from the limits of eager's dtype, the operand, and the arguments that are given."""

    names: tuple[str, ...]
    missing: Callable[[torch.finfo, Tensor, dict[str, Any]], dict[str, Any]]


_RULES: Implementations[_Rule] = Implementations(DEFAULTS_BY_DTYPE)


def _threshold(limits: torch.finfo, matrix: Tensor, given: dict[str, Any]) -> dict[str, Any]:
    if any(given.get(name) is not None for name in ("rtol", "atol", "rcond", "tol")):
        return {}
    return {"rtol": max(matrix.shape[-2:]) * limits.eps}


def _threshold_of_rank(limits: torch.finfo, matrix: Tensor, given: dict[str, Any]) -> dict[str, Any]:
    return {} if given.get("rcond") is not None else {"rcond": max(matrix.shape[-2:]) * limits.eps}


def _added(limits: torch.finfo, x: Tensor, given: dict[str, Any]) -> dict[str, Any]:
    return {} if given.get("eps") is not None else {"eps": limits.eps}


def _ends(limits: torch.finfo, x: Tensor, given: dict[str, Any]) -> dict[str, Any]:
    ends = {"posinf": limits.max, "neginf": limits.min}
    return {name: end for name, end in ends.items() if given.get(name) is None}


_RULES.register("linalg_pinv")(_Rule(("A", "rcond", "hermitian"), _threshold))
_RULES.register("linalg_matrix_rank")(_Rule(("A", "tol", "hermitian"), _threshold))
_RULES.register("linalg_lstsq")(_Rule(("A", "B", "rcond"), _threshold_of_rank))
_RULES.register("rms_norm", "_fused_rms_norm")(_Rule(("input", "normalized_shape", "weight", "eps"), _added))
_RULES.register("nan_to_num")(_Rule(("input", "nan", "posinf", "neginf"), _ends))


class RecordOperands:
    """Notes the dtype of the first operand of each such call, in eager's run, and which calls gave new memory."""

    def __init__(self, program: Program) -> None:
        rules = {index: _rule_of(call) for index, call in enumerate(program.calls)}
        views = {index: viewed_as(call) for index, call in enumerate(program.calls)}
        self._rules = {index: rule for index, rule in rules.items() if rule is not None}
        self._views = {index: named for index, named in views.items() if named is not None}
        self._aliasing = frozenset(index for index in self._views if program.calls[index].operator == "view")
        self._writes = any(call.writes and call.operator != "requires_grad" for call in program.every_call)
        self._dtypes: dict[int, torch.dtype] = {}
        self._new: set[int] = set()

    def __bool__(self) -> bool:
        """Whether there is anything to be told."""
        return bool(self._rules or self._views or self._writes)

    def perform(self, index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """A call of eager's run: see ``Program.run``."""
        operand = _operand(args, kwargs) if index in self._rules or index in self._views else None
        if operand is not None and (operand.is_floating_point() or operand.is_complex() or index in self._views):
            self._dtypes[index] = operand.dtype
        result = function(*args, **kwargs)
        if self._writes and not _memory((args, kwargs)) & _memory(result):
            self._new.add(index)
        return result

    def told(self, perform: Perform | None) -> Perform:
        """What makes the calls of a float64 run: ``perform`` with eager's defaults, where it leaves them out, and with
        eager's bits."""
        aliases: list[Alias] = []

        def performed(index: int, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
            operand = _operand(args, kwargs)
            if index in self._dtypes and index in self._views:
                function = functools.partial(viewed, function, self._dtypes[index], self._views[index])
            elif index in self._dtypes:
                args, kwargs = self._complete(index, args, kwargs)
            result = function(*args, **kwargs) if perform is None else perform(index, function, args, kwargs)
            if index in self._new and (shared := _memory((args, kwargs)) & _memory(result)):
                result = tree_map_only(Tensor, lambda t: t.clone() if _memory(t) & shared else t, result)
            for _ in aliases:  # what one carries over another one may view
                for alias in aliases:
                    alias.settle()
            if operand is not None and self._writes and index in self._aliasing and index in self._dtypes:
                eager, named = self._dtypes[index], self._views[index]
                if reads_bits(eager, named):
                    aliases.append(Alias(operand, result, eager, named))
            return result

        return performed

    def _complete(self, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        rule, operand = self._rules[index], _operand(args, kwargs)
        if operand is None:
            return args, kwargs
        by_position = dict(zip(rule.names, args, strict=False))
        missing = rule.missing(torch.finfo(self._dtypes[index]), operand, {**by_position, **kwargs})
        positions = [missing.pop(name, value) for name, value in by_position.items()]
        return (*positions, *args[len(positions) :]), {**kwargs, **missing}


def _rule_of(call: Call) -> _Rule | None:
    """The rule of a call by its public name: ``torch.linalg.pinv`` is the operator ``linalg_pinv``."""
    return _RULES.get(("linalg_" if call.target.startswith("torch.linalg.") else "") + call.operator)


def _memory(values: Any) -> set[int]:
    """Keys of the storages that tensors among nested values lie in; sparse ones have none."""
    return {storage_key(value) for value in flatten(values) if _has_memory(value)}


def _has_memory(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided


def _operand(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | None:
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
