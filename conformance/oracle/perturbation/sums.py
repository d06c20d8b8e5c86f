"""What eager adds up in float32 where its operands have 16 bits: the rounding model adds it up so, too.

A running sum of 16 bits loses all digits within some thousand terms, and a model that grants that grants anything. That
eager does better is not taken on trust: a test measures each op of the table.
"""

from __future__ import annotations

from typing import Any

import torch

from torchstone.compiler._torch.operators import base_name

_SUMS = """
    sum mean nansum cumsum mm mv dot vdot bmm addmm addmv baddbmm _softmax _log_softmax native_layer_norm
    native_group_norm var var_mean std std_mean linalg_vector_norm logsumexp
"""
SUMS = frozenset(_SUMS.split())
"""ATen ops that eager adds up in float32, whose results alone it rounds to 16 bits."""


def adds_in_float32(func: Any, dtype: torch.dtype) -> bool:
    """Whether eager adds up in float32 what an op is given in ``dtype``."""
    name = base_name(func).rstrip("_")
    return name in SUMS and dtype in (torch.float16, torch.bfloat16)
