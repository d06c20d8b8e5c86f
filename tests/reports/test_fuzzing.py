"""The report's section on fuzzing, with what a campaign found."""

from __future__ import annotations

import re

import pytest

from torchstone.conformance.store import Campaign, Store, record_campaign
from torchstone.reports.fuzzing import by_op
from torchstone.reports.html import render_html
from torchstone.reports.markdown import render_markdown
from torchstone.reports.model import build_report
from torchstone.reports.results import load_results

from .conftest import HOSTILE, verdict


def _finding(name: str, *blames: str, message: str = "expected 1, got 2") -> dict:
    cause = "any op with offset" if not blames else ", ".join(blames)
    return {"name": name, "signature": "s", "message": message, "seen": 3, "blames": list(blames), "cause": cause}


def _report(tmp_path, folder: str, *findings: dict, backend: str = "linalg") -> dict:
    record = {
        "programs": 40, "seed": 7, "seconds": 20.0, "finished": True, "interrupted": False,
        "outcomes": {"pass": 37, "mismatch": 3}, "ops": {"torch.sub": 30, "torch.add": 12},
        "drafts": {"programs": 50, "programs_kept": 40}, "findings": list(findings),
    }  # fmt: skip
    with Store(tmp_path / "store") as store:
        run = store.new_run("torchstone run", {}, {})
        store.record(run, verdict("linalg", "add:float32:0", "pass"))
        store.finish(run)
        record_campaign(store, Campaign(backend, folder, "2026-01-01", "torchstone fuzz", record), {})
        return build_report(load_results(store))


def test_a_campaign_is_counted_and_its_findings_stand_under_their_ops(tmp_path):
    report = _report(tmp_path, "/f", _finding("mismatch-sub", "sub"), _finding("any"), _finding("both", "add", "sub"))
    (row,) = report["fuzzing"]
    assert (row["programs"], row["seconds"], row["valid"], len(row["ops"])) == (40, 20.0, 0.8, 2)
    assert row["outcomes"] == {"pass": 37, "mismatch": 3}
    assert [(op, [one["name"] for one in found]) for op, found in by_op(row)] == [
        ("add", ["both"]), ("sub", ["mismatch-sub", "both"]), ("any op", ["any"]),
    ]  # fmt: skip
    assert report["ops"] == ["add"], "programs are no ops of the matrix"
    assert report["backends"][0]["cases"] == 1
    text, page = render_markdown(report), render_html(report, {})
    assert "| linalg | 7 | 40 | 20.0 s | 80% | 2 | 3 |" in text
    assert "[mismatch-sub](file:///f/mismatch-sub)" in text
    assert '<a href="file:///f/mismatch-sub">mismatch-sub</a>' in page and ">80 %<" in page


def test_a_campaign_of_another_backend_is_left_out(tmp_path):
    report = _report(tmp_path, "/f", backend="inductor")
    assert report["fuzzing"] == []
    assert "Fuzzing" not in render_markdown(report) and 'id="fuzzing"' not in render_html(report, {})


@pytest.mark.parametrize("folder", ["javascript:alert(1)", "relative", f"/{HOSTILE}"])
def test_what_a_store_holds_cannot_become_markup(tmp_path, folder):
    report = _report(tmp_path, folder, _finding(HOSTILE, HOSTILE, message=HOSTILE))
    page = render_html(report, {})
    assert "<script>alert" not in page and "<b>bold" not in page and 'href="javascript' not in page
    text = re.sub(r"(`+).*?\1", "", render_markdown(report))  # code is shown as it is
    assert "<script>" not in text and "<b>" not in text and not re.search(r"(?<!\\)\]\(javascript", text)
    assert len([line for line in text.splitlines() if line.startswith("# ")]) == 1
