"""How each outcome looks and reads: its symbol, its rank when a cell holds several, its colours in both themes."""

from __future__ import annotations

from dataclasses import dataclass

from torchstone.conformance.execution.verdict import FAILURES, Outcome, Stage

STAGES = tuple(str(stage) for stage in Stage)
PASS = str(Outcome.PASS)


@dataclass(frozen=True)
class Look:
    """One outcome's row: ``light`` and ``dark`` are (background, text, bar) colours."""

    outcome: str
    symbol: str
    meaning: str
    light: tuple[str, str, str]
    dark: tuple[str, str, str]


# Worst first: the first outcome of this table that a cell holds gives the cell its symbol.
LOOKS = (
    Look("crash", "✗", "the process died: a signal, an abort, an exit",
         ("#9f1239", "#ffffff", "#9f1239"), ("#be123c", "#ffffff", "#fb4d73")),
    Look("mismatch", "≠", "a result differs from eager beyond what the float64 referee allows",
         ("#fde0e4", "#99102a", "#d6324f"), ("#4a1722", "#ffb3c0", "#f0506e")),
    Look("timeout", "T", "no answer within the time limit",
         ("#ffe6c7", "#7d3c00", "#e07b12"), ("#43290c", "#ffc98a", "#ee8f2f")),
    Look("oom", "M", "out of memory",
         ("#f8dcc8", "#7c2e0a", "#b8501a"), ("#412113", "#fdb890", "#d97742")),
    Look("error", "!", "an error where eager succeeds",
         ("#fff0c2", "#6b4c00", "#d3a10a"), ("#3d3209", "#f7d774", "#d9b02c")),
    Look("harness-error", "H", "the harness itself failed; says nothing about the backend",
         ("#1f2937", "#ffffff", "#1f2937"), ("#e5e7eb", "#111827", "#e5e7eb")),
    Look("flaky", "±", "failed, then passed when retried alone",
         ("#fbe1f6", "#84206f", "#bf4aa5"), ("#3d1836", "#f5b3e6", "#d468ba")),
    Look("fallback", "F", "right answer, but the backend did not execute the op itself",
         ("#dbe8fd", "#1c4a90", "#4b86dd"), ("#142c50", "#a9cbff", "#5f9bf0")),
    Look("ill-conditioned", "~", "differs, but by no more than eager does when its inputs move by one ULP",
         ("#ebe2fb", "#553592", "#8f6cd0"), ("#2c1f4a", "#d0bcf7", "#a385e0")),
    Look("unsupported", "–", "the backend says it does not take this program",
         ("#e6e9ee", "#465362", "#9aa6b4"), ("#272d35", "#aeb9c6", "#677484")),
    Look("untested", "?", "the suite could not ask: says nothing about the backend",
         ("#ffffff", "#5f6b76", "#d5dae0"), ("#14171b", "#9aa5b1", "#3a424c")),
    Look("pass", "✓", "agrees with eager",
         ("#ddf3e6", "#0f5e37", "#2f9e62"), ("#10301f", "#8fe0b2", "#36b374")),
)  # fmt: skip

ORDER = tuple(look.outcome for look in LOOKS)
RANK = {outcome: rank for rank, outcome in enumerate(ORDER)}
SYMBOLS = {look.outcome: look.symbol for look in LOOKS}
FAILING = tuple(outcome for outcome in ORDER if outcome in FAILURES and outcome != Outcome.HARNESS_ERROR)
"""The outcomes a backend answers for. Infrastructure trouble is never a backend's failure."""

LISTED = tuple(outcome for outcome in ORDER if outcome not in ("pass", "unsupported", "untested", "fallback"))
"""The outcomes whose cases are listed one by one; the others are counted and grouped by reason."""


def worst(outcomes: dict[str, int]) -> str:
    """Return the outcome that a cell holding these counts shows."""
    return min(outcomes, key=lambda outcome: RANK[outcome])


def in_order(outcomes: dict[str, int]) -> dict[str, int]:
    """Return the counts, pass first and then worst first, without the zeros."""
    order = (PASS, *(outcome for outcome in ORDER if outcome != PASS))
    return {outcome: outcomes[outcome] for outcome in order if outcomes.get(outcome)}
