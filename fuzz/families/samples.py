"""Every op no family draws by itself: a call is lifted out of the op database's own samples.

The literals of a sample are kept. Each of its tensors is replaced by a value of the program that has the same shape and
dtype, where there is one, and becomes a new input otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from torchstone.conformance.sources import opinfo
from torchstone.fuzz.rounding import names
from torchstone.fuzz.rules import Rule, database, rule

SAMPLES = 40

RANDOM = names(
    """
    bernoulli cauchy exponential geometric log_normal multinomial normal uniform rand_like randint randint_like
    randn randn_like native_dropout_backward nn.functional.alpha_dropout nn.functional.dropout
    nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout nn.functional.rrelu
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d
    nn.functional.multi_head_attention_forward svd_lowrank pca_lowrank empty empty_like empty_permuted empty_strided
    new_empty new_empty_strided hash_tensor
    """
)
"""Ops that draw random numbers, or return whatever memory held."""

AMBIGUOUS = names(
    """
    linalg.eig linalg.eigh linalg.svd svd linalg.qr qr geqrf linalg.householder_product ormqr linalg.lu lu
    linalg.lu_factor linalg.lu_factor_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.lstsq linalg.pinv pinverse
    linalg.matrix_rank linalg.cond unique unique_consecutive mode msort histogram histc
    """
)
"""Ops with more than one right answer, or one that hangs on a threshold: comparing element by element is no test."""


def rules(taken: Collection[str]) -> Iterator[Rule]:
    """Yield a rule for every op of the database that can be called by a public name and is not in ``taken``."""
    for op, info in database().items():
        if op in taken or {op, info.name} & (RANDOM | AMBIGUOUS):
            continue
        if info.name.endswith("_") or "jiterator" in op or "sparse" in op or not opinfo.expressible(op):
            continue
        yield from rule(op, _lifted(op), target=op)
