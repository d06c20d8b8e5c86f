"""Programs as a Hypothesis strategy: Hypothesis makes the generator's choices, and shrinks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from torchstone.conformance.case import Case
from torchstone.fuzz.choices import DrawnChoices
from torchstone.fuzz.generate import NothingGenerated, generate
from torchstone.fuzz.rules import select


@st.composite
def programs(draw: Any, ops: Sequence[str] = (), max_ops: int = 5) -> Case:
    """Draw valid programs with their inputs, of the named ops only, of all if none are named."""
    try:
        return generate(DrawnChoices(draw), select(ops), max_ops)
    except NothingGenerated:
        reject()
