"""Each kind of escaping on every hostile text, and on any text: it holds the text, and nothing of it acts."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
import shlex
import tomllib
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from torchstone.conformance import escape

from .corpus import TEXTS

FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
MARKDOWN = MarkdownIt("commonmark").enable("table")


def quiet(text: str, allowed: str = "\n") -> bool:
    """Whether no character steers a terminal, changes direction or is unseen."""
    return not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c not in allowed]


def commands(text: str) -> list[str]:
    """The lines that a CI server takes for commands to it, of GitHub, Azure or TeamCity."""
    return [line for line in text.splitlines() if line.lstrip().startswith("::") or re.search(r"##[\w.-]*\[", line)]


def visible(text: str) -> None:
    assert quiet(escape.visible(text), "") and len(escape.visible(text)) == len(text)


def one_line(text: str) -> None:
    assert quiet(escape.one_line(text), "") and len(escape.one_line(text, 20)) <= 20


def printable_lines(text: str) -> None:
    shown = escape.printable_lines(text)
    assert quiet(shown) and escape.printable_lines(shown) == shown
    assert shown.count("\n") == text.count("\n")


def log_lines(text: str) -> None:
    shown = escape.log_lines(text)
    assert quiet(shown) and not commands(shown)
    assert escape.log_lines(shown) == shown


def utf8(text: str) -> None:
    assert escape.utf8(text).encode().decode() == escape.utf8(text)


def shell_command(text: str) -> None:
    words = ["torchstone", "replay", text, "-b", text]
    command = escape.shell_command(words)
    assert quiet(command, "")
    assert shlex.split(command, comments=True) == (words if escape.visible(text) == text else [])


def replay_command(text: str) -> None:
    found = shlex.split(escape.replay_command(text, "eager"), comments=True)
    if escape.visible(text) == text:
        assert text in found and (not text.startswith("-") or found.index("--") < found.index(text))


def file_name(text: str) -> None:
    name = escape.file_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) and len(name) <= escape.NAME_LIMIT
    assert len(text) < 100 or escape.file_name(text + "a") != escape.file_name(text + "b"), "what is cut is told apart"


def string_literal(text: str) -> None:
    written = escape.string_literal(repr(text))
    assert ast.literal_eval(written) == text and not commands(written)


def docstring(text: str) -> None:
    for told in ([text], [text, "", text], text.splitlines() or [""]):
        assert not commands("\n".join(escape.docstring(told)))
        (statement,) = ast.parse("\n".join(escape.docstring(told))).body
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        assert str(statement.value.value).rstrip("\n") == "\n".join(map(escape.visible, told)).rstrip("\n")


def markdown(text: str) -> None:
    for cell in (escape.markdown(text), escape.markdown_code(text)):
        assert quiet(cell, "") and not commands(cell)
        tokens = MARKDOWN.parse(f"| a | b |\n| --- | --- |\n| {cell} | {cell} |\n")
        assert [token.type for token in tokens].count("td_open") == 2
        inside = {child.type for token in tokens for child in token.children or ()}
        assert inside <= {"text", "code_inline", "text_special", "html_inline"}
        html = [child.content for token in tokens for child in token.children or () if child.type == "html_inline"]
        assert set(html) <= {"<code>", "</code>"}
    whole = escape.markdown(text, limit=10**6)
    (inline,) = [token for token in MARKDOWN.parse(f"# x{whole}x") if token.type == "inline"]
    said = "".join(child.content for child in inline.children or ())
    assert said == f"x{escape.visible(' '.join(text.split()))}x"


def markdown_block(text: str) -> None:
    (fence, after, *_) = MARKDOWN.parse(f"{escape.markdown_block(text, 10**6)}\n\nafter\n")
    assert fence.type == "fence" and fence.content.removesuffix("\n") == escape.log_lines(text)
    assert after.type == "paragraph_open"


def xml(text: str) -> None:
    element = ET.Element("a", name=escape.xml(text))
    element.text = escape.xml(text)
    read = ET.fromstring(ET.tostring(element, "utf-8"))
    assert read.get("name") == escape.xml(text)
    assert (read.text or "").replace("\r", "\n").replace("\n", "") == re.sub("[\r\n]", "", escape.xml(text))
    kept = [c for c in text if c not in escape.xml(text)]
    assert all(ord(c) < 32 or "\ud800" <= c <= "\udfff" or c in "\ufffe\uffff" for c in kept)


def toml(text: str) -> None:
    written = f"a = {escape.toml(text)}\n[b]\n"
    assert tomllib.loads(written.encode().decode()) == {"a": escape.utf8(text), "b": {}}


def spreadsheet(text: str) -> None:
    file = io.StringIO(newline="")
    escape.csv_rows(file, [[text, 1.5, "end"], [1]])
    (cell, number, end), _ = csv.reader(io.StringIO(file.getvalue(), newline=""))
    assert (number, end) == ("1.5", "end") and cell.replace("␀", "\0").replace("'", "") == text.replace("'", "")
    assert not cell.startswith((*FORMULA, "\t", "\r", "\n"))
    assert not [part for part in re.split("[;\t\r\n]", cell)[1:] if part.lstrip('" ').startswith(FORMULA)]


def workflow_message(text: str) -> None:
    command = f"::error title={escape.workflow_property(text)},line=1::{escape.workflow_message(text)}"
    assert quiet(command, "")
    _, head, message = command.split("::", 2)
    properties = head.removeprefix("error ").split(",")
    assert len(properties) == 2 and ":" not in properties[0]
    read = message.replace("%0A", "\n").replace("%0D", "\r").replace("%25", "%")
    assert read == escape.printable_lines(text)


def json_text(text: str) -> None:
    assert json.loads(json.dumps({"a": text})) == {"a": text}


KINDS: dict[str, Callable[[str], None]] = {
    function.__name__: function
    for function in (
        visible, one_line, printable_lines, log_lines, utf8, shell_command, replay_command, file_name, string_literal,
        docstring, markdown, markdown_block, xml, toml, spreadsheet, workflow_message, json_text,
    )
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_corpus(kind: str) -> None:
    for text in TEXTS.values():
        KINDS[kind](text)


@pytest.mark.few(8)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(text=st.text(st.characters(), max_size=40) | st.text("\"'\\`|*_[]<>&\n\r\t:%#=-.$ a\0\x1b\ud800", max_size=20))
@example(text='"')
def test_any_text(kind: str, text: str) -> None:
    KINDS[kind](text)


def test_every_kind_of_escaping_is_tried() -> None:
    public = {name for name, value in vars(escape).items() if callable(value) and value.__module__ == escape.__name__}
    tried = {*KINDS, "markdown_code", "workflow_property", "csv_rows"}  # with those of the same name
    assert {name for name in public if not name.startswith("_")} <= tried
