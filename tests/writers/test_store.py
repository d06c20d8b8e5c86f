"""A store of somebody else's, hostile in every text it holds, through every command that reads one."""

from __future__ import annotations

import csv
import json
import sqlite3
import tomllib
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from torchstone import cli
from torchstone.conformance.escape import printable_lines, spreadsheet, utf8, visible
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.store import Store

from .corpus import TEXTS, ran
from .test_escape import quiet

pytestmark = pytest.mark.usefixtures("fork_server")

OUTCOMES = (Outcome.MISMATCH, Outcome.CRASH, Outcome.UNSUPPORTED, Outcome.FALLBACK, Outcome.UNTESTED, Outcome.PASS)
NAMES = list(TEXTS.values())
OPTIONS = {"backends": ["linalg"], "sources": ["corpus"], "ops": NAMES, "dtypes": NAMES}


def fill(store: Store, shift: int, texts: list[str]) -> None:
    """Write a finished run in which every text stands wherever a text can; ``shift`` is which outcomes it has."""
    everything = "\n".join(texts)
    run = store.new_run(everything, OPTIONS, {text: text for text in texts}, device=everything)
    for at, text in enumerate(texts):
        outcome = OUTCOMES[(at + shift) % len(OUTCOMES)]
        for backend in ("linalg", f"{text}{at}"):
            store.record(run, Verdict(f"corpus:{text}:{at}", backend, text, text, text, text, Stage.RUN, outcome, text,
                                      text, {text: text, "list": [text]}, 0.5))  # fmt: skip
            store.record(run, Verdict(text or "-", backend, text, text, text, text, Stage.RUN, outcome, text, text))
    store.finish(run, errors={text: text for text in texts} if shift else {})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "hostile.sqlite"
    with Store(path) as db:
        for shift in (0, 1, 0):
            fill(db, shift, list(TEXTS.values()))
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "small.sqlite"
    with Store(path) as db:
        for shift in (0, 1):
            fill(db, shift, [TEXTS["colours"], "add"])
    return path


def invoke(capfd: pytest.CaptureFixture[str], *args: object) -> tuple[int, str, str]:
    code = cli.invoke([str(arg) for arg in args])
    out, err = capfd.readouterr()
    assert not ran() and "Traceback" not in err
    return code, out, err


class Page(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: set[tuple[str, tuple[str, ...]]] = set()
        self.values: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, tuple(sorted(name for name, _ in attrs))))
        self.values |= {str(value) for name, value in attrs if name in ("href", "src", "style")}

    def handle_comment(self, data: str) -> None:
        self.elements.add(("comment", ()))

    unknown_decl = handle_pi = handle_comment


def plain(path: Path) -> Path:
    """A store of the same shape without a hostile text."""
    with Store(path) as db:
        for shift in (0, 1, 0):
            run = db.new_run("command", {**OPTIONS, "ops": ["op"], "dtypes": ["float32"]}, {"a": "1"}, device="cpu")
            for at in range(len(TEXTS)):
                outcome = OUTCOMES[(at + shift) % len(OUTCOMES)]
                for backend in ("linalg", f"b{at}"):
                    for case in (f"corpus:op{at}:0", f"corpus:op{at}:1"):
                        told = Verdict(case, backend, "corpus", f"op{at}", "float32", "default", Stage.RUN, outcome)
                        db.record(run, replace(told, kind="value", message="told", evidence={"key": "value"}))
            db.finish(run)
    return path


def test_report(capfd: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    code, out, _ = invoke(capfd, "report", "--store", store, "--against", "r2", "--out", tmp_path / "site")
    assert code in (0, 1) and quiet(out) and out.count("\n") < 2 * len(TEXTS) + 100
    normal = plain(tmp_path / "plain.sqlite")
    invoke(capfd, "report", "--store", normal, "--against", "r2", "--out", tmp_path / "plain")

    page = Page((tmp_path / "site/index.html").read_text())
    wanted = Page((tmp_path / "plain/index.html").read_text())
    assert page.elements <= wanted.elements | {("details", ("class",)), ("summary", ())}
    assert {value for value in page.values if not value.startswith(("width:", "flex-grow:", "#"))} == {
        "report.md", "report.json"
    }  # fmt: skip
    assert quiet((tmp_path / "site/index.html").read_text()), "what turns text around is shown as what it is"

    text = (tmp_path / "site/report.md").read_text()
    assert quiet(text)
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    headings = [tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open"]
    known = ("torchstone report", "Summary", "Stages", "Findings", "Unsupported", "Fallbacks", "Untested", "Changes")
    assert not [t for t in tokens if t.type == "heading_open" and t.tag in ("h1", "h2")
                and not tokens[tokens.index(t) + 1].content.startswith((*known, "Matrix", "Provenance"))]  # fmt: skip
    assert len(headings) > len(TEXTS)
    inline = {child.type for token in tokens for child in token.children or ()}
    assert inline <= {"text", "text_special", "code_inline", "html_inline", "softbreak", "strong_open", "strong_close"}
    html = {child.content for token in tokens for child in token.children or () if child.type == "html_inline"}
    assert html <= {"<code>", "</code>"}
    blocks = [token.content.strip() for token in tokens if token.type == "html_block"]
    assert all(block == "</details>" or Page(block).elements == {("details", ()), ("summary", ())} for block in blocks)
    widths: set[int] = set()
    for token in tokens:
        if token.type == "tr_open":
            count = 0
        elif token.type in ("td_open", "th_open"):
            count += 1
        elif token.type == "tr_close":
            row = count
            widths.add(row)
        elif token.type == "table_close":
            assert len(widths) == 1
            widths.clear()

    data = json.loads((tmp_path / "site/report.json").read_text())
    assert {case["message"] for case in data["cases"]} <= {utf8(value) for value in TEXTS.values()}
    assert len(data["cases"]) > len(TEXTS)


@pytest.mark.few(3)
@pytest.mark.parametrize("form", ["table", "json", "csv"])
@pytest.mark.parametrize("command", ["list", "show", "diff r1 r2"])
def test_runs(capfd: pytest.CaptureFixture[str], store: Path, command: str, form: str) -> None:
    code, out, err = invoke(capfd, "runs", *command.split(), "--store", store, "--format", form)
    assert code in (0, 1) and quiet(out) and quiet(err) and out
    if form == "json":
        assert json.loads(out)
    if form == "csv":
        rows = list(csv.reader(out.splitlines(keepends=True)))
        assert len({len(row) for row in rows}) == 1
        assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]


@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_export(capfd: pytest.CaptureFixture[str], store: Path, tmp_path: Path, form: str) -> None:
    out = tmp_path / f"verdicts.{form}"
    code, said, _ = invoke(capfd, "runs", "export", "r1", "--store", store, "--out", out)
    assert code == 0 and quiet(said)
    text = out.read_bytes().decode()
    wanted = {utf8(value) for value in TEXTS.values()}
    if form == "csv":
        with out.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        found = {row["message"].replace("␀", "\0") for row in rows}
        wanted = {spreadsheet(value) for value in wanted}
    else:
        rows = json.loads(text) if form == "json" else [json.loads(line) for line in text.split("\n") if line]
        found = {row["message"] for row in rows}
        assert [row for row in rows if "\ud800 \udcff x" in row["evidence"]], "JSON holds what UTF-8 does not"
    assert found == wanted


def test_expectations(capfd: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    file, junit = tmp_path / "linalg.toml", tmp_path / "junit.xml"
    where = ("--store", store, "--run", "r1", "--expect", file)
    code, out, err = invoke(capfd, "expect", "update", *where, "--backend", "linalg")
    assert code == 0 and quiet(out) and quiet(err), err
    rows = tomllib.loads(file.read_text())["expect"]
    assert all(set(row) <= {"case", "source", "op", "dtype", "variant", "outcome", "reason"} for row in rows)
    code, out, _ = invoke(capfd, "expect", "check", *where, "--junit", junit, "--format", "json")
    assert {row["backend"] for row in json.loads(out)} & {"linalg"} == set(), "what was written says how the run came"
    names = {case.get("name") for case in ET.parse(junit).getroot().iter("testcase")}
    assert len(names) > len(TEXTS) and ET.parse(junit).getroot().get("errors") == "0"

    code, out, _ = invoke(capfd, "expect", "check", "--store", store, "--run", "r1", "--junit", junit, "--annotations",
                          "github")  # fmt: skip
    commands = [line for line in out.split("\n") if line.lstrip().startswith("::")]
    assert code == 1 and commands and all(line.startswith("::error title=") for line in commands)
    messages = {failure.get("message") for failure in ET.parse(junit).getroot().iter("failure")}
    assert len(messages) > 10


def test_replay_and_reduce(capfd: pytest.CaptureFixture[str], store: Path, tmp_path: Path) -> None:
    for text in TEXTS.values():
        if "\0" in text or not text or "\ud800" in text:
            continue
        for args in (("replay", "--backend", "eager"), ("replay", "--script", "--backend", "eager")):
            code, out, err = invoke(capfd, *args, "--store", store, "--", text)
            assert code == 2 and not out and quiet(err) and err.startswith("error: "), text
    code, out, err = invoke(
        capfd, "reduce", "--all", "-b", "linalg", "--run", "r1", "--store", store, "--out", tmp_path
    )
    assert code == 1 and quiet(out) and quiet(err)
    assert all(path.resolve().is_relative_to(tmp_path.resolve()) for path in tmp_path.rglob("*"))


def corrupt(store: Path, path: Path, statement: str) -> Path:
    path.write_bytes(store.read_bytes())
    with sqlite3.connect(path) as db:
        db.execute(statement)
    db.close()
    return path


@pytest.mark.few(2)
@pytest.mark.parametrize("statement", [
    "UPDATE verdicts SET evidence = '[[' || case_id",
    "UPDATE verdicts SET evidence = '3'",
    "UPDATE verdicts SET evidence = '{\"unproven\": ' || replace(hex(zeroblob(500)), '00', '[') || "
    "replace(hex(zeroblob(500)), '00', ']') || ', \"eager_further\": 1}'",
    "UPDATE verdicts SET seconds = 9e999",
    "UPDATE verdicts SET message = x'ff00fe'",
    "UPDATE verdicts SET op = CAST(x'ff00fe' AS TEXT)",
    "UPDATE verdicts SET outcome = '<b>'",
    "UPDATE verdicts SET dtype = 'x' || hex(zeroblob(3000))",
    "UPDATE runs SET options = '{\"backends\": [1], \"ops\": 3}'",
    "UPDATE runs SET options = '[]'",
    "UPDATE runs SET options = '{\"backends\": {\"a\": \"b\"}, \"pythons\": []}'",
    "UPDATE runs SET versions = '{\"torch\": [1, 2]}'",
    "UPDATE runs SET errors = '{\"linalg\": null}'",
    "UPDATE runs SET started = 5",
    "UPDATE runs SET started = x'ff'",
    "UPDATE runs SET device = x'ff'",
])  # fmt: skip
def test_rows_that_are_none(capfd: pytest.CaptureFixture[str], small: Path, tmp_path: Path, statement: str) -> None:
    """They end a command with one line, never with a traceback; or do not matter to it."""
    path = corrupt(small, tmp_path / "corrupt.sqlite", statement)
    for args in (
        ("report", "--out", tmp_path / "site"), ("runs",), ("runs", "show"), ("runs", "diff", "r2", "r1"),
        ("runs", "export", "--out", tmp_path / "x.json"), ("run", "--resume", "r1"),
        ("run", "--last-failed", "--source", "corpus"),
        ("expect", "check", "--run", "r1", "--junit", tmp_path / "junit.xml"),
        ("expect", "update", "--run", "r1", "--expect", tmp_path / "new.toml", "--backend", "linalg"),
        ("reduce", "--all", "-b", "nothing"),
    ):  # fmt: skip
        code, out, err = invoke(capfd, *args, "--store", path)
        assert quiet(out) and quiet(err) and (code in (0, 1) or err.count("\n") == 1), args
        if code == 2:
            assert err.startswith("error: ") and len(err) < 1000


def test_the_corpus_says_what_it_should() -> None:
    assert len(TEXTS) >= 60 and len(set(TEXTS.values())) == len(TEXTS)
    assert any(visible(text) != text for text in TEXTS.values()) and any(
        printable_lines(text) == text for text in TEXTS.values()
    )
