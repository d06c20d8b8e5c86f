"""The library: ATen ops that are calls into LibTorch where a target has no rule for them, and why each is one.

A target that runs on the host takes them as they are; see ``torchstone.compiler.lowering.partition``. An expansion of
the op, when there is one for its arguments, goes first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from torchstone.compiler.ir.graph import Operation
from torchstone.compiler.ir.sizes import BIND, sized_by_values


@dataclass(frozen=True, slots=True)
class Family:
    """Ops, by name without overload, that are in the library for one ``reason``.

    An op with an ``effect`` happens whether or not its results are used, and in the program's order: it raises, or it
    moves PyTorch's random generator on.
    """

    reason: str
    ops: tuple[str, ...]
    effect: bool = False
    random: bool = False


FAMILIES = (
    Family(
        "LAPACK: a factorization, or what is computed from one",
        (
            "_linalg_det", "_linalg_eigh", "_linalg_eigvals", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_svd",
            "cholesky", "cholesky_inverse", "cholesky_solve", "geqrf", "linalg_cholesky_ex", "linalg_eig",
            "linalg_eigvals", "linalg_householder_product", "linalg_inv_ex", "linalg_ldl_factor_ex", "linalg_ldl_solve",
            "linalg_lstsq", "linalg_lu", "linalg_lu_factor_ex", "linalg_lu_solve", "linalg_matrix_exp", "linalg_pinv",
            "linalg_qr", "linalg_solve_triangular", "lu_unpack", "ormqr", "triangular_solve",
        ),
    ),
    Family("it raises LAPACK's own errors, which name the matrix and the element", ("_linalg_check_errors",), True),
    Family("a sum over paths through a lattice, step after step", ("_ctc_loss", "_ctc_loss_backward")),
    Family(
        "sorting into as many places as there are different values",
        ("_unique", "_unique2", "unique_consecutive", "unique_dim"),
    ),
    Family(
        "random numbers: PyTorch's generator draws the very ones that eager draws",
        (
            "_sample_dirichlet", "_standard_gamma", "bernoulli", "binomial", "cauchy", "exponential", "geometric",
            "log_normal", "multinomial", "native_dropout", "normal", "normal_functional", "poisson", "rand",
            "rand_like", "randint", "randint_like", "randn", "randn_like", "random", "randperm",
            "rrelu_with_noise_functional", "uniform",
        ),
        True,
        random=True,
    ),
)  # fmt: skip

LIBRARY: dict[str, Family] = {f"aten.{op}": family for family in FAMILIES for op in family.ops}


_EFFECTS = frozenset(
    {
        "flat.check",
        BIND,
        "flat.require",
        "flat.specialize",
        "flat.answer",
        "aten._assert_async.default",
        "aten._assert_async.msg",
    }
)


def find_family(op: Operation) -> Family | None:
    """Return the family of an op that may be a library call, None for any other."""
    return _family(op.name)


@cache
def _family(name: str) -> Family | None:
    return LIBRARY.get(name.rpartition(".")[0])


def has_effect(op: Operation) -> bool:
    """Say whether an op does something beside giving results: a check of a size that nobody uses is one."""
    if op.name in _EFFECTS or is_ordered(op):
        return True
    if op.name.startswith("flat."):
        return any(has_effect(inner) for graph in op.graphs.values() for inner in graph.ops)
    return sized_by_values(op)


def is_random(op: Operation) -> bool:
    """Say whether an op, or one in its graphs, draws random numbers."""
    if op.graphs:
        return any(is_random(inner) for graph in op.graphs.values() for inner in graph.ops)
    family = find_family(op)
    return family is not None and family.random


def is_ordered(op: Operation) -> bool:
    """Say whether an op makes a library call that has to keep its place among others."""
    if op.name.startswith("flat."):
        return op.name == "flat.seed" or any(is_ordered(inner) for graph in op.graphs.values() for inner in graph.ops)
    family = find_family(op)
    return family is not None and family.effect
