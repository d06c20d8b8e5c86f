"""The page of what the oracle waives: it is the generated one, and shows every tolerance, departure and exemption."""

from __future__ import annotations

from pathlib import Path

from torchstone.conformance.oracle import waivers
from torchstone.conformance.oracle.op_traits.table import TRAITS
from torchstone.conformance.oracle.tolerances import COMPONENT, TABLE
from torchstone.conformance.program.literals import dtype_name

PAGE = Path(__file__).parents[3] / "docs" / "waivers.md"


def test_the_page_in_docs_is_the_generated_one() -> None:
    assert PAGE.read_text() == waivers.page(), f"write it anew: {waivers.COMMAND}"


def test_the_page_shows_every_dtype_and_every_trait_with_its_ops() -> None:
    page = waivers.page()
    assert all(f"`{dtype_name(dtype)}`" in page for dtype in (*TABLE, *COMPONENT))
    for trait in TRAITS.values():
        assert f"**{trait.title}.**" in page and trait.reason in page and trait.effect in page
        assert all(f"`{op}`" in page for op in trait.ops), trait.title


def test_each_number_of_the_tolerances_has_its_unit() -> None:
    page = waivers.page()
    units = ("Ratio of", "Fraction of", "In ULPs", "In powers of two", "Relative", "Probability")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| `") and line.split("`")[1].isupper()]
    assert len(rows) > 10
    assert all(row[2].startswith(units) for row in rows), [row for row in rows if not row[2].startswith(units)]
