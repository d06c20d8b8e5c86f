"""Primitives of the host: they take a value or a size out of a run, and decide whether it goes on."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

from torchstone.compiler.diagnostics import GuardError
from torchstone.compiler.ir import dtypes as dt
from torchstone.compiler.ir.dims import Dim, Expr
from torchstone.compiler.ir.graph import Graph, Value
from torchstone.compiler.ir.types import TensorType
from torchstone.compiler.ops.primitive import Primitive, check

RELATIONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}
# What an evaluator is given for a graph among the attributes.
Branch: TypeAlias = Callable[..., tuple[Any, ...]]
HOLDS = {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le}


def _bind_infer(count: TensorType, *, size: Dim) -> tuple[TensorType, ...]:
    check(count.rank == 0 and count.dtype.is_int, "bind", f"takes a 0-d integer, got {count}")
    return ()


def _bind(count: Any, *, size: int) -> tuple[()]:
    if int(count) != size:
        raise GuardError(f"a size was compiled to be {size}, and is {int(count)}")
    return ()


def _require_infer(*, left: Dim, right: Dim, relation: str) -> tuple[TensorType, ...]:
    check(relation in RELATIONS, "require", f"relation must be one of {', '.join(RELATIONS)}, got {relation}")
    check(isinstance(left, Expr | int) and isinstance(right, Expr | int), "require", "compares sizes")
    return ()


def _require(*, left: int, right: int, relation: str) -> tuple[()]:
    if not HOLDS[relation](left, right):
        raise GuardError(f"the program was compiled for {left} {RELATIONS[relation]} {right}")
    return ()


def _specialize_infer(x: TensorType, *, value: Any) -> tuple[TensorType, ...]:
    check(x.rank == 0, "specialize", f"takes one number, got {x}")
    return ()


def same_number(one: Any, other: Any) -> bool:
    """Say whether two numbers are one to a program: the zeros are two, and a float that is no number is itself."""
    return repr(one) == repr(other) if isinstance(one, float | complex) else bool(one == other)


def is_rounded(x: Any, *, value: Any) -> bool:
    """Say whether a float is another than the program was specialized to, though it is finite where that is."""
    got = x.item()
    floats = isinstance(got, float) and isinstance(value, float)
    return floats and not same_number(got, value) and math.isfinite(got) and math.isfinite(value)


def _specialize(x: Any, *, value: Any) -> tuple[()]:
    got = x.item()
    if not same_number(got, value):
        raise GuardError(f"the program was compiled for the value {value}, and it is {got}")
    return ()


# What Python makes of a float that says less than the float does.
QUESTIONS: dict[str, Callable[..., Any]] = {"format": format, "round": round}


def _answer_infer(x: TensorType, *, question: str, by: Any, value: Any) -> tuple[TensorType, ...]:
    check(x.rank == 0, "answer", f"takes one number, got {x}")
    check(question in QUESTIONS, "answer", f"question must be one of {', '.join(QUESTIONS)}, got {question}")
    return ()


def _answer(x: Any, *, question: str, by: Any, value: Any) -> tuple[()]:
    number = x.item()
    got = QUESTIONS[question](number, by)
    if not same_number(got, value):
        raise GuardError(
            f"the program was compiled for {question}(…, {by!r}) being {value!r}, and of {number} it is {got!r}"
        )
    return ()


def _check_graph(op: str, name: str, graph: Graph, types: tuple[TensorType, ...]) -> tuple[TensorType, ...]:
    """Check that a graph takes these types and gives tensors; return theirs."""
    takes = tuple(a.type for a in graph.args)
    check(takes == types, op, f"{name} takes ({', '.join(map(str, takes))}), is given ({', '.join(map(str, types))})")
    known = {str(d) for t in types for d in t.shape}
    check(known >= {s for t in types for s in t.symbols}, op, f"a size of ({', '.join(map(str, types))}) is not known")
    outputs = tuple(o.type for o in graph.outputs if isinstance(o, Value) and isinstance(o.type, TensorType))
    check(len(outputs) == len(graph.outputs), op, f"{name} must return tensors")
    check(all(t.symbols <= known for t in outputs), op, f"{name} returns a size that it was not given")
    return outputs


def _cond_infer(pred: TensorType, *operands: TensorType, then: Graph, otherwise: Graph) -> tuple[TensorType, ...]:
    check(pred == TensorType((), dt.boolean), "cond", f"takes bool[] first, got {pred}")
    left = _check_graph("cond", "then", then, operands)
    right = _check_graph("cond", "otherwise", otherwise, operands)
    check(left == right, "cond", f"branches give ({', '.join(map(str, left))}) and ({', '.join(map(str, right))})")
    return left


def _cond(pred: Any, *operands: Any, then: Branch, otherwise: Branch) -> tuple[Any, ...]:
    return then(*operands) if bool(pred) else otherwise(*operands)


def _while_infer(*operands: TensorType, condition: Graph, body: Graph, carried: int) -> tuple[TensorType, ...]:
    holds = _check_graph("while", "condition", condition, operands)
    check(holds == (TensorType((), dt.boolean),), "while", f"condition must give bool[], gives {holds}")
    given = _check_graph("while", "body", body, operands)
    check(
        given == operands[:carried], "while", f"body must give what it is given, gives ({', '.join(map(str, given))})"
    )
    return given


def _while(*operands: Any, condition: Branch, body: Branch, carried: int) -> tuple[Any, ...]:
    state, rest = operands[:carried], operands[carried:]
    while bool(condition(*state, *rest)[0]):
        state = body(*state, *rest)
    return tuple(state)


def _seed_infer(*, seed: int) -> tuple[TensorType, ...]:
    return ()


def _seed(*, seed: int) -> tuple[()]:
    import torch

    torch.manual_seed(seed)
    return ()


EFFECTS = (
    Primitive(
        "bind",
        "Let a symbol that no size is called yet be this 0-d integer; of any other size, GuardError unless it is it.",
        1, _bind_infer, _bind, ("size",),
    ),
    Primitive(
        "require",
        "GuardError unless two sizes compare so: what the program takes for granted about sizes known at run time.",
        0, _require_infer, _require, ("left", "right", "relation"),
    ),
    Primitive(
        "specialize",
        "GuardError unless a 0-d tensor has the value that the program was specialized to.",
        1, _specialize_infer, _specialize, ("value",),
    ),
    Primitive(
        "answer",
        "GuardError unless Python's format or round gives this of a 0-d float, by a format or a number of digits.",
        1, _answer_infer, _answer, ("question", "by", "value"),
    ),
    Primitive("seed", "Seed PyTorch's random generator.", 0, _seed_infer, _seed, ("seed",)),
)  # fmt: skip

ROWS = (
    *EFFECTS,
    Primitive(
        "cond",
        "One graph or the other, as a bool[] says, on the rest of the operands. Both take and give the same types.",
        None, _cond_infer, _cond, ("then", "otherwise"),
    ),
    Primitive(
        "while",
        "While the graph condition holds, the graph body in place of the first operands, of which there are carried; "
        "both are given the rest of the operands too.",
        None, _while_infer, _while, ("condition", "body", "carried"),
    ),
)  # fmt: skip
