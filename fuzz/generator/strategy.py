"""Programs as a Hypothesis strategy: Hypothesis makes the generator's choices, and shrinks them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from torchstone.conformance.program.case import Case
from torchstone.fuzz.generator.catalog import all_rules, select_rules
from torchstone.fuzz.generator.choices import DrawnChoices
from torchstone.fuzz.generator.generate import NothingGenerated, generate
from torchstone.fuzz.generator.rules import OpRule


def programs(ops: Sequence[str] = (), max_ops: int = 5) -> st.SearchStrategy[Case]:
    """Return a strategy for valid programs with their inputs, of the named ops only, of all if none are named.

    Raises UnknownName for an op the fuzzer does not know.
    """
    # The op database is imported now: it registers Hypothesis profiles, which must not happen while a test runs.
    all_rules()
    return _programs(select_rules(ops), max_ops)


@st.composite
def _programs(draw: Any, rules: Sequence[OpRule], max_ops: int) -> Case:
    try:
        return generate(DrawnChoices(draw), rules, max_ops)
    except NothingGenerated:
        reject()
