"""The files: hostile text stays text, the page is self-contained and bounded, writing is all or nothing."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from torchstone.conformance.escape import printable_lines
from torchstone.conformance.store import Store
from torchstone.reports import html, markdown, site
from torchstone.reports.model import build_report
from torchstone.reports.results import ReportError, load_results

from .conftest import FIRST, HOSTILE, SECOND, verdict


@pytest.fixture
def report(filled: Path) -> dict[str, Any]:
    with Store(filled, create=False) as store:
        return build_report(load_results(store))


class Page(HTMLParser):
    """The tags, the scripts and the visible text of a page, and a check that every tag is closed in order."""

    VOID = frozenset({"meta", "input", "link", "br", "rect", "path"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.text += data


def test_page_is_well_formed_and_needs_no_network(report: dict[str, Any]) -> None:
    page = Page(html.render_html(report, {"report.json": "report.json"}))
    for tag, attributes in page.tags:
        assert tag not in ("link", "img", "iframe", "object"), tag
        assert "src" not in attributes and "srcset" not in attributes
        assert not [name for name in attributes if name.startswith("on")]
        if "href" in attributes:
            assert attributes["href"] == "report.json" or str(attributes["href"]).startswith("#")
    anchors = {str(a["href"])[1:] for _, a in page.tags if str(a.get("href", "")).startswith("#")}
    assert anchors <= {a.get("id") for _, a in page.tags}


def test_hostile_text_stays_text(report: dict[str, Any]) -> None:
    text = html.render_html(report, {})
    page = Page(text)
    assert len(page.scripts) == 2 and "alert(1)" not in page.scripts[1]
    assert "<script>alert(1)" not in text
    data = json.loads(page.scripts[0])
    assert any(printable_lines(HOSTILE) in entry for entry in data["texts"])
    assert "alert(1)</script>" in page.text  # shown as what it is
    allowed = next(str(a["content"]) for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in allowed and "default-src 'none'" in allowed
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", page.scripts[1])


def test_control_characters_are_shown_not_written(report: dict[str, Any]) -> None:
    for text in (html.render_html(report, {}), markdown.render_markdown(report)):
        assert "␀" in text and not [c for c in text if ord(c) < 32 and c not in "\n\t"]


def test_page_tells_untested_from_unsupported(report: dict[str, Any]) -> None:
    page = Page(html.render_html(report, {}))
    chips = [a["class"] for t, a in page.tags if t == "span" and str(a.get("class", "")).startswith("chip o-")]
    assert "chip o-untested" in chips and "chip o-unsupported" in chips
    style = html.palette()
    assert style.count(".o-untested{") == style.count(".o-unsupported{") == 1
    assert "What the suite could not ask" in page.text


def test_payload_rebuilds_the_matrix(report: dict[str, Any]) -> None:
    data = html.payload(report)
    rebuilt = [
        {
            "backend": data["backends"][b],
            "op": data["ops"][op],
            "dtype": data["dtypes"][dtype],
            "outcomes": {data["outcomes"][o]: n for o, n in zip(parts[::2], parts[1::2], strict=True)},
        }
        for b, op, dtype, *parts in data["matrix"]
    ]
    assert rebuilt == report["matrix"]
    assert [data["texts"][case[-1]] for case in data["cases"]] == [case["replay"] for case in report["cases"]]


def test_page_lists_as_many_cases_as_fit_and_says_how_many_it_hides(
    report: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = report["cases"][0]
    report["cases"] = [case | {"op": op, "case_id": f"{op}:{i}"} for op in ("add", "mul") for i in range(40)]
    monkeypatch.setattr(html, "MAX_CASES", 30)
    data = html.payload(report)
    assert len(data["cases"]) <= 30
    assert len(data["cases"]) + sum(entry[-1] for entry in data["hidden"]) == 80


def test_page_stays_small_at_the_size_of_the_op_database(report: dict[str, Any]) -> None:
    ops = [f"nn.functional.some_rather_long_operator_name_{i}" for i in range(700)]
    dtypes = ["bool", "int32", "int64", "bfloat16", "float16", "float32", "float64", "complex64"]
    backends = ["eager", "linalg", "tosa", "tensorrt"]
    base, cell = report["cases"][0], {"pass": 20, "mismatch": 3, "unsupported": 4}
    report["ops"], report["dtypes"] = ops, dtypes
    report["backends"] = [report["backends"][0] | {"backend": name} for name in backends]
    report["matrix"] = [
        {"backend": b, "op": op, "dtype": d, "outcomes": cell} for b in backends for op in ops for d in dtypes
    ]
    report["cases"] = [
        base | {"backend": b, "op": op, "dtype": "float32", "case_id": f"{b}:{op}:{i}", "message": f"{op} {i} " * 20}
        for b in backends for op in ops for i in range(10)
    ]  # fmt: skip
    report["unsupported"] = [
        {"backend": b, "reason": f"aten.{op}", "stages": ["lower"], "cases": 9, "ops": {op: 9}, "alone": [op]}
        for b in backends for op in ops
    ]  # fmt: skip
    report["lonely"] = report["fallback"] = report["untested"] = []
    assert len(html.render_html(report, {}).encode()) < 10e6


def test_markdown_keeps_hostile_text_out_of_the_markup(report: dict[str, Any]) -> None:
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(markdown.render_markdown(report))
    headings = [b.content for a, b in itertools.pairwise(tokens) if a.type == "heading_open"]
    assert "title" not in headings
    raw = [t.content for t in tokens if t.type == "html_block"]
    raw += [c.content for t in tokens for c in t.children or () if c.type == "html_inline"]
    assert raw and all(re.fullmatch(r"</details>\n|<details><summary>[^<]*</summary>\n", piece) for piece in raw), raw
    links = [c for t in tokens for c in t.children or () if c.type == "link_open"]
    assert not links
    fences = [t.content for t in tokens if t.type == "fence"]
    assert any("alert(1)" in fence and "# title" in fence for fence in fences)


def test_markdown_tables_keep_their_columns(report: dict[str, Any]) -> None:
    tokens = MarkdownIt().enable("table").parse(markdown.render_markdown(report))
    width = seen = 0
    for token in tokens:
        if token.type == "thead_open":
            width = -1
        elif token.type == "tr_open":
            seen = 0
        elif token.type in ("th_open", "td_open"):
            seen += 1
        elif token.type == "tr_close":
            width = seen if width < 0 else width
            assert seen == width
    text = markdown.render_markdown(report)
    assert "| `mul` | ✗ 1 | ≠ 1 |" in text  # linalg's row of the matrix: bool, float32
    assert "torchstone replay opinfo:mul:float32:0 --backend linalg" in text


@pytest.mark.parametrize("value", ["", "`", "``a`b", "a|b", "<b>", "x" * 999, "a\nb", "*_[]~\\"])
def test_markdown_quoting_reads_back(value: str) -> None:
    table = f"| a | b |\n| --- | --- |\n| {markdown.code(value)} | {markdown.text(value)} |"
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(table)
    cells = [t for t in tokens if t.type == "inline"][2:]
    assert len(cells) == 2 and {c.type for c in cells[1].children or ()} <= {"text", "text_special"}
    shown = "".join(c.content for c in cells[1].children or ())
    assert shown.startswith(" ".join(value.split())[:200])


def test_files_are_the_same_every_time(report: dict[str, Any], tmp_path: Path) -> None:
    first, second = (site.write_site(report, tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["index.html", "report.md", "report.json"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    assert json.loads(first[2].read_text()) == report


def test_only_the_wanted_formats_are_written(report: dict[str, Any], tmp_path: Path) -> None:
    assert [path.name for path in site.write_site(report, tmp_path / "out", ["json"])] == ["report.json"]
    assert os.listdir(tmp_path / "out") == ["report.json"]


def test_a_folder_that_cannot_be_written_is_one_clear_error(report: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ReportError, match=r"cannot write the report into .*file: .*; give another folder with --out"):
        site.write_site(report, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_leaves_the_earlier_report_as_it_was(
    report: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write_site(report, tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}

    def chmod(path: str, mode: int) -> None:
        if "report.json" in path:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "chmod", chmod)
    report["torchstone"] = "9"
    with pytest.raises(ReportError, match="No space left"):
        site.write_site(report, tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before


def test_changes_are_in_every_format(make_store: Callable[..., Path]) -> None:
    with Store(make_store(FIRST, SECOND), create=False) as store:
        data = build_report(load_results(store), load_results(store, ["r1"]))
    assert "2 regressions, 2 fixes" in Page(html.render_html(data, {})).text
    assert "## Changes since r1" in markdown.render_markdown(data)


def test_one_passing_case_makes_a_report(make_store: Callable[..., Path]) -> None:
    with Store(make_store([verdict("eager", "add:float32:0", "pass")]), create=False) as store:
        data = build_report(load_results(store))
    assert "No case failed." in Page(html.render_html(data, {})).text
    assert "No case failed." in markdown.render_markdown(data)


def test_shares_never_round_to_all_or_nothing() -> None:
    assert html.percent(9999, 10000) == "99.9 %" and html.percent(1, 100000) == "0.1 %"
    assert html.percent(5, 5) == "100 %" and html.percent(0, 5) == "0 %" and html.percent(0, 0) == "0 %"


def test_fallbacks_are_counted_and_told_apart_from_passes(make_store: Callable[..., Path]) -> None:
    verdicts = [
        verdict("linalg", "add:float32:0", "pass"),
        verdict("linalg", "inv:float32:0", "fallback", message="eager ran aten.linalg_inv_ex.default"),
    ]
    with Store(make_store(verdicts), create=False) as store:
        report = build_report(load_results(store))
    (row,) = report["backends"]
    assert (row["outcomes"], row["ops"]["complete"]) == ({"pass": 1, "fallback": 1}, 1)
    page, text = Page(html.render_html(report, {})).text, markdown.render_markdown(report)
    for written in (page, text):
        assert "eager ran aten.linalg" in written.replace("\\", "") and "Fallbacks, by reason" in written
    assert "Fallbacks1" in "".join(page.split())
    assert "| linalg | 1 (50.0 %) | 0 | 1 | 0 | 0 |" in text
