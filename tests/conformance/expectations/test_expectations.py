"""Expectation files: what they say, what is refused and where, which row decides, which rows a run is about."""

from __future__ import annotations

import fnmatch
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.conformance.expectations import Expectation, ExpectationError, ExpectationFile, load_expectations
from torchstone.conformance.expectations.parse import MAX_BYTES, parse_document
from torchstone.conformance.expectations.scope import RunScope, parse_pattern, patterns_below, patterns_overlap

FILE = Path("expectations/linalg.toml")
ROW = '[[expect]]\nop = "add"\noutcome = "crash"\nreason = "known"\n'
HEAD = 'backend = "linalg"\n'


def rows(text: str) -> tuple[Expectation, ...]:
    return parse_document(HEAD + text, FILE).expectations.rows


def case(number: int = 0, op: str = "add", dtype: str = "float32", variant: str = "default", source: str = "opinfo"):
    tail = "" if variant == "default" else f":{variant}"
    return f"{source}:{op}:{dtype}:{number}{tail}", source, op, dtype, variant


def test_a_file_is_read():
    text = """
[[expect]]  # a comment
case = "opinfo:add:*"
outcome = ["mismatch", "flaky"]
reason = '''
two
lines'''
issue = "https://example.org/issues/1?a=b"

[[ "expect" ]]
op = 'sub'
dtype = "float*"
outcome = "unsupported"
reason = "é"
"""
    first, second = rows(text)
    assert first == Expectation(
        ("mismatch", "flaky"), "two\nlines", "https://example.org/issues/1?a=b", "opinfo:add:*", line=3
    )
    assert second == Expectation(("unsupported",), "é", op="sub", dtype="float*", line=11)
    assert rows("") == () and rows("expect = []") == ()


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "name the backend"),
        ("backend = 3", "name the backend"),
        ('backend = "a\\u001bb"', "name the backend"),
        (HEAD + 'run = "rm -rf /"\n' + ROW, "unknown key 'run'"),
        (HEAD + ROW.replace("[[expect]]", "[[expects]]"), "unknown key 'expects' (did you mean \"expect\"?)"),
        (HEAD + ROW.replace("[[", "[").replace("]]", "]"), "write each row under a line [[expect]]"),
        (HEAD + 'expect = [{op = "add", outcome = "crash", reason = "x"}]', "cannot be told apart"),
        (HEAD + ROW + "reason = 'again'\n", ":6: Cannot overwrite a value"),
        (HEAD + ROW + "op = \n", ":6: Invalid value"),
        (HEAD + "\n" + ROW.replace("op =", "opp ="), ":3: unknown key 'opp' (did you mean \"op\"?)"),
        (HEAD + ROW.replace('"crash"', '"cras"'), ":2: unknown outcome 'cras' (did you mean \"crash\"?)"),
        (HEAD + ROW.replace('"crash"', '["crash", "crash"]'), ":2: an outcome is named twice"),
        (HEAD + ROW.replace('"crash"', "[]"), ":2: give the outcome expected"),
        (HEAD + ROW.replace('"crash"', '{a = "crash"}'), ":2: unknown outcome"),
        (HEAD + ROW.replace('"crash"', '"harness-error"'), ":2: harness-error says nothing about the backend"),
        (HEAD + ROW.replace('outcome = "crash"\n', ""), ":2: give the outcome expected"),
        (HEAD + ROW.replace('reason = "known"\n', ""), ":2: give the reason"),
        (HEAD + ROW.replace('"known"', '" "'), ":2: reason is empty"),
        (HEAD + ROW.replace('"add"', "7"), ":2: op is a text, got 7"),
        (HEAD + ROW.replace('op = "add"\n', ""), ":2: say which cases the row is about"),
        (HEAD + ROW.replace('"add"', '"a\\u0000b"'), ":2: op has control characters"),
        (HEAD + ROW.replace('"add"', f'"{"*a" * 500}"'), ":2: op has 1,000 characters"),
        (HEAD + ROW.replace('"known"', f'"{"x" * 20_000}"'), ":2: reason has 20,000 characters"),
        (HEAD + ROW + 'issue = "javascript:alert(1)"\n', ":2: issue is a link"),
        (HEAD + ROW + 'issue = "https://"\n', ":2: issue is a link"),
        (HEAD + ROW + 'issue = "https://[/"\n', ":2: issue is a link"),
        (HEAD + ROW + ROW, ":6: duplicate row: op = 'add' has one in line 2 already"),
        (HEAD + ROW + ROW.replace("crash", "error"), ":6: conflicting row: op = 'add' has one in line 2 already"),
        (HEAD + "expect = " + "[" * 100_000, "nested too deeply"),
        (HEAD + ROW.replace('"add"', "1" * 5000), "Exceeds the limit"),
        (HEAD + ROW.replace("add", "\x1b]0;title\x07"), "Illegal character '\\x1b'"),
        ("!!python/object/apply:os.system ['touch /tmp/pwned']", ":1: "),
        ("__import__('os').system('true')", ":1: "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text, message):
    with pytest.raises(ExpectationError) as caught:
        parse_document(text, FILE)
    told = str(caught.value)
    assert told.startswith(str(FILE)) and message in told, told
    assert len(told) < 2000 and told.isprintable(), "an error is one line that a terminal may show"


def test_files_that_are_none(tmp_path):
    for content, message in [(b"\xff", ":1: not UTF-8"), (b"#" * (MAX_BYTES + 1), "larger than")]:
        path = tmp_path / "bad.toml"
        path.write_bytes(content)
        with pytest.raises(ExpectationError, match=message):
            load_expectations(path)
    for path, message in [(tmp_path, "not a file"), (tmp_path / "none", "no such file"), (Path("/dev/zero"), "not a")]:
        with pytest.raises(ExpectationError, match=message):
            load_expectations(path)
    with pytest.raises(ExpectationError):
        load_expectations(Path("a\0b"))


def test_the_last_row_that_matches_decides():
    text = """
[[expect]]
source = "opinfo"
outcome = "error"
reason = "all"
[[expect]]
op = "a*"
outcome = "crash"
reason = "op"
[[expect]]
case = "opinfo:add:float32:*"
outcome = "mismatch"
reason = "head"
[[expect]]
case = "opinfo:add:float32:3"
outcome = "pass"
reason = "one"
[[expect]]
op = "add"
dtype = "float16"
variant = "strided"
outcome = "oom"
reason = "three"
"""
    file = parse_document(HEAD + text, FILE).expectations

    def reason(*key: str) -> str | None:
        row = file.find(*key)
        return row and row.reason

    assert reason(*case(3)) == "one" and reason(*case(4)) == "head" and reason(*case(3, variant="odd")) == "head"
    assert reason(*case(dtype="float16")) == "op" and reason(*case(dtype="float16", variant="strided")) == "three"
    assert reason(*case(op="mul")) == "all" and reason(*case(op="mul", source="models")) is None
    assert reason(*case(op="Add")) == "all", "patterns heed case on every machine"
    assert list(file.matching(*case(3))) == [0, 1, 2, 3]


PIECES = st.sampled_from(["a", "b", ":", "0", "7", "*", "?", "[ab]", "[!a]", "[0-9]", "[", "]", "-", "[]-b]", "[b-a]"])
PATTERNS = st.lists(PIECES, max_size=6).map("".join)
TEXTS = st.text("ab:07[]-", max_size=6)


@settings(max_examples=120, deadline=None)
@given(PATTERNS, TEXTS)
def test_the_index_finds_what_the_patterns_match_and_letters_read_them_alike(pattern, text):
    matches = fnmatch.fnmatchcase(text, pattern)
    file = ExpectationFile(FILE, "x", (Expectation(("pass",), "r", case=pattern),))
    assert bool(file.matching(text, "s", "o", "d", "v")) == matches
    assert patterns_overlap(parse_pattern(pattern), parse_pattern(text.replace("[", "[[]"))) == matches


@settings(max_examples=100, deadline=None)
@given(PATTERNS, PATTERNS, TEXTS)
def test_patterns_that_match_one_text_overlap(left, right, text):
    both = fnmatch.fnmatchcase(text, left) and fnmatch.fnmatchcase(text, right)
    assert patterns_overlap(parse_pattern(left), parse_pattern(right)) or not both


@pytest.mark.parametrize("limit", [0, 1, 2, 9, 10, 11, 100, 125, 1000, 1234])
def test_numbers_below_a_limit(limit):
    patterns = list(patterns_below(limit))
    for number in {*range(min(limit + 5, 140)), limit - 1, limit, limit + 1, 10 * limit} - {-1}:
        matched = sum(fnmatch.fnmatchcase(str(number), pattern) for pattern in patterns)
        assert matched == (number < limit), number
    assert not any(fnmatch.fnmatchcase("00", pattern) for pattern in patterns)


ASKED = {"sources": ["opinfo"], "ops": ["add", "conv*", "!conv3d"], "dtypes": ["float32"], "limit": 5}


@pytest.mark.parametrize(
    "selectors, options, asked",
    [
        ({"op": "add"}, ASKED, True),
        ({"op": "sub"}, ASKED, False),
        ({"op": "conv2d"}, ASKED, True),
        ({"op": "conv3d"}, ASKED, False),
        ({"op": "*d"}, ASKED, False),  # with ops left out, a pattern may be about those
        ({"op": "*d"}, ASKED | {"ops": ["add"]}, True),
        ({"op": "add", "dtype": "float16"}, ASKED, False),
        ({"op": "add", "dtype": "float*"}, ASKED, True),
        ({"op": "add", "variant": "strided"}, ASKED, False),
        ({"op": "add", "variant": "strided"}, ASKED | {"variants": ["default", "strided"]}, True),
        ({"op": "add", "variant": "strided"}, ASKED | {"variants": ["all"]}, True),
        ({"op": "add", "source": "modules"}, ASKED, False),
        ({"case": "opinfo:add:float32:4"}, ASKED, True),
        ({"case": "opinfo:add:float32:5"}, ASKED, False),
        ({"case": "opinfo:add:float32:5"}, ASKED | {"limit": None}, True),
        ({"case": "opinfo:add:float32:4:strided"}, ASKED, False),
        ({"case": "opinfo:add:*:strided"}, ASKED | {"ops": ["add"]}, False),
        ({"case": "opinfo:add:*:strided"}, ASKED | {"variants": ["strided"]}, True),
        ({"case": "opinfo:add:float16:*"}, ASKED, False),
        ({"case": "opinfo:nowhere:*"}, {"sources": ["opinfo"], "dtypes": ["float32"], "limit": None}, True),
        ({"case": "*"}, ASKED | {"ops": None}, True),
        ({"case": "corpus:x:float32:0"}, {"sources": ["corpus=/somewhere"]}, True),
        ({"op": "add"}, ASKED | {"shard": "1/2"}, False),
        ({"op": "add"}, ASKED | {"tags": ["view"]}, False),
        ({"op": "add"}, ASKED | {"cases": ["opinfo:add"]}, False),
        ({"op": "nowhere"}, {}, True),
    ],
)
def test_whether_a_run_was_asked_what_a_row_is_about(selectors, options, asked):
    assert RunScope.of(options).asks(Expectation(("crash",), "r", **selectors)) is asked


def test_a_pattern_made_to_take_for_ever_does_not():
    pattern = "*a" * 400 + "b"
    file = ExpectationFile(FILE, "x", (Expectation(("pass",), "r", case=pattern),))
    assert not file.matching("a" * 2000, "s", "o", "d", "v")
    assert not patterns_overlap(parse_pattern("*a" * 100), parse_pattern("*b" * 100)) and patterns_overlap(
        parse_pattern("*a" * 100), parse_pattern("*b*" * 100)
    )
