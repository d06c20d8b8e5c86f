"""JUnit XML, GitHub annotations and exports: other tools read them back, whatever a backend said."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.conformance.errors import InputError
from torchstone.conformance.store import VERDICT_COLUMNS, Store
from torchstone.reports.annotations import LIMIT, Annotation, annotation_lines
from torchstone.reports.export import COLUMNS, ExportFormat, export
from torchstone.reports.junit import MAX_TEXT, JunitTest, write_junit
from torchstone.reports.results import ReportError

from .conftest import HOSTILE, fill, verdict

STARTED = "2026-01-02T03:04:05+00:00"


def junit(path: Path, *tests: JunitTest) -> ET.Element:
    write_junit(path, tests, started=STARTED, properties={"torch": "2.13\x00"})
    return ET.parse(path).getroot()


def test_junit_counts_what_it_holds(tmp_path):
    root = junit(
        tmp_path / "sub" / "j.xml",
        JunitTest("a", "a.add", "one", seconds=0.25),
        JunitTest("a", "a.add", "two", "failed", "got 1", "mismatch value", "all of it", 0.5),
        JunitTest("b", "b.add", "one", "error", "no worker", "harness-error"),
        JunitTest("a", "a.add", "three", "skipped", "unsupported: no"),
    )
    assert root.attrib == {"name": "torchstone", "tests": "4", "failures": "1", "errors": "1", "time": "0.750"}
    first, second = root.findall("testsuite")
    assert [first.get(name) for name in ("tests", "failures", "errors", "skipped", "id")] == ["3", "1", "0", "1", "0"]
    assert (first.get("time"), first.get("timestamp")) == ("0.750", "2026-01-02T03:04:05")
    assert [[child.tag for child in case] for case in first.findall("testcase")] == [[], ["failure"], ["skipped"]]
    failure = first.find("testcase/failure")
    assert failure is not None and failure.attrib == {"message": "got 1", "type": "mismatch value"}
    assert failure.text == "all of it" and second.find("testcase/error") is not None
    assert first[0].tag == "properties", "the schema has the properties first"
    assert first[0][0].attrib == {"name": "torch", "value": "2.13\ufffd"}


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=30))
def test_junit_takes_any_text(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.xml"
    case = junit(path, JunitTest(text, text, text, "failed", text, text, text or "x")).find("testsuite/testcase")
    assert case is not None and case[0].text is not None
    # a parser makes one space of any white space in an attribute, unless it is written as a character reference
    forbidden = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
    assert case.get("name") == forbidden.sub("\ufffd", text)


def test_junit_is_bounded_and_kept_when_it_cannot_be_written(tmp_path):
    path = tmp_path / "j.xml"
    case = junit(path, JunitTest("a", "a", "a", "failed", "x" * 10**6, "", HOSTILE)).find("testsuite/testcase/failure")
    assert case is not None and len(case.get("message") or "") < MAX_TEXT + 100
    assert "characters more" in (case.get("message") or "") and "</script>" in (case.text or "")
    before = path.read_bytes()

    def broken():
        yield JunitTest("a", "a", "a")
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError):
        write_junit(path, broken(), started=STARTED, properties={})
    assert path.read_bytes() == before and [one.name for one in tmp_path.iterdir()] == ["j.xml"]
    for where in (tmp_path, Path("/dev/null"), path / "below", tmp_path / "a\0b"):
        with pytest.raises(InputError, match="cannot write"):
            write_junit(where, [], started=STARTED, properties={})


def test_annotations_are_escaped_by_githubs_rules():
    (line,) = annotation_lines([Annotation("a,b: 100%", "50%\r\n::set-env name=X::y", "dir/a,b:c.toml", 7)])
    assert line == "::error title=a%2Cb%3A 100%25,file=dir/a%2Cb%3Ac.toml,line=7::50%25"
    (line,) = annotation_lines([Annotation("x", "a\x1b[31m\u202eb\rc: d, e")])
    assert line == "::error title=x::a␛[31m\ufffdb" and "\x1b" not in line


@settings(max_examples=20, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=20))
def test_an_annotation_is_one_command_on_one_line(title, message, file):
    (line,) = annotation_lines([Annotation(title, message, file, 3)])
    assert len(line.splitlines()) == 1
    head, _, data = line.removeprefix("::error ").partition("::")
    names = [part.partition("=")[0] for part in head.split(",")]
    assert names == (["title", "file", "line"] if file else ["title"]) and "\n" not in data


@pytest.mark.parametrize("count, shown", [(0, 0), (LIMIT, LIMIT), (LIMIT + 1, LIMIT), (5000, LIMIT)])
def test_annotations_are_bounded_and_the_last_counts_the_rest(count, shown):
    found = list(annotation_lines([Annotation(f"p{n}", "m" * 10_000) for n in range(count)]))
    assert len(found) == shown and all(len(line) < 1000 for line in found)
    if count > LIMIT:
        assert f"and {count - LIMIT + 1:,} more" in found[-1]


FORMULA = '=HYPERLINK("http://evil")'


@pytest.fixture
def hostile(tmp_path):
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        fill(store, [
            verdict("eager", "add:float32:0", "pass"),
            verdict("linalg", "add:float32:0", "crash", message=FORMULA, evidence={"x": float("inf")}),
            verdict("linalg", "add:float32:1", "error", message=HOSTILE),
            verdict("linalg", "../../x:float32:2", "error", message="-1\n\t=2"),
        ])  # fmt: skip
        yield store


def test_export_reads_back(hostile, tmp_path):
    runs = hostile.run_list()
    assert export(hostile, runs, tmp_path / "x.json", ExportFormat.json) == 4
    rows = json.loads((tmp_path / "x.json").read_text())
    assert list(rows[0]) == list(COLUMNS) == ["run", *VERDICT_COLUMNS]
    crash = next(row for row in rows if row["outcome"] == "crash")
    assert crash["message"] == FORMULA and crash["evidence"] == {"x": "inf"} and crash["seconds"] == 0.5
    assert HOSTILE in [row["message"] for row in rows]
    assert export(hostile, runs, tmp_path / "x.jsonl", ExportFormat.jsonl) == 4
    assert [json.loads(line) for line in (tmp_path / "x.jsonl").read_text().splitlines()] == rows
    assert sorted(one.name for one in tmp_path.iterdir() if "sqlite" not in one.name) == ["x.json", "x.jsonl"]


def test_no_cell_of_a_csv_is_a_formula(hostile, tmp_path):
    export(hostile, hostile.run_list(), tmp_path / "x.csv", ExportFormat.csv)
    with (tmp_path / "x.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    assert not [cell for row in rows for cell in row.values() if cell[:1] in tuple("=+-@\t\r")]
    messages = [row["message"] for row in rows]
    assert "'" + FORMULA in messages and "'-1\n\t'=2" in messages and HOSTILE.replace("\0", "␀") in messages


def test_an_export_replaces_a_whole_file_or_nothing(hostile, tmp_path):
    out = tmp_path / "x.jsonl"
    out.write_text("before")
    hostile._db.execute("UPDATE verdicts SET evidence = 'nonsense' WHERE outcome = 'error'")
    with pytest.raises(InputError, match=r"the evidence of case .* is not JSON"):
        export(hostile, hostile.run_list(), out, ExportFormat.jsonl)
    assert out.read_text() == "before" and not list(tmp_path.glob(".x*"))
    for name in ("results.sqlite", "link"):
        if name == "link":
            (tmp_path / name).symlink_to(hostile.path)
        with pytest.raises(ReportError, match="is the store itself"):
            export(hostile, hostile.run_list(), tmp_path / name, ExportFormat.csv)


def test_parquet(hostile, tmp_path):
    parquet = pytest.importorskip(
        "pyarrow.parquet", reason="pyarrow is not installed: pip install 'torchstone[parquet]'"
    )
    assert export(hostile, hostile.run_list(), tmp_path / "x.parquet", ExportFormat.parquet) == 4
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table.column_names == list(COLUMNS) and table.num_rows == 4
    assert [tuple(row.values())[1:] for row in table.to_pylist()] == list(hostile.iter_verdicts("r1"))
    assert json.loads(table.schema.metadata[b"torchstone.runs"])[0]["versions"] == {"torch": "2.13.0"}


def test_parquet_without_pyarrow_says_how_to_get_it(hostile, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ReportError, match=r"pip install 'torchstone\[parquet\]'"):
        export(hostile, hostile.run_list(), tmp_path / "x.parquet", ExportFormat.parquet)
    assert not (tmp_path / "x.parquet").exists()
