"""A run held against expectations, and a file brought up to date: what holds stays to the byte, the rest goes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.expectations import (
    baseline,
    check_complete,
    files_by_backend,
    load_expectations,
    new_document,
    read_document,
    update_document,
)
from torchstone.conformance.expectations.parse import parse_document
from torchstone.conformance.store import Store

OPTIONS = {"backends": ["linalg"], "sources": ["opinfo"], "ops": None, "dtypes": ["float32"], "limit": None}


def verdict(op: str, index: int, outcome: str, message: str = "", variant: str = "default") -> Verdict:
    tail = "" if variant == "default" else f":{variant}"
    return Verdict(f"opinfo:{op}:float32:{index}{tail}", "linalg", "opinfo", op, "float32", variant, Stage.RUN,
                   Outcome(outcome), message=message)  # fmt: skip


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        yield store


def run(store: Store, outcomes: dict[str, list[str]], **options):
    name = store.new_run("torchstone run", OPTIONS | options, {})
    for op, each in outcomes.items():
        for index, outcome in enumerate(each):
            store.record(name, verdict(op, index, outcome, f"{op} {outcome} {index}"))
    store.finish(name)
    return store.run(name)


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "linalg.toml"
    path.write_text('backend = "linalg"\n' + text)
    return path


def row(outcome: str, reason: str = "known", **selectors: str) -> str:
    fields = "".join(f'{name} = "{value}"\n' for name, value in selectors.items())
    return f'\n[[expect]]\n{fields}outcome = "{outcome}"\nreason = "{reason}"\n'


def judged(store, record, path: Path) -> dict[str, str]:
    judgement = baseline(store, record, [load_expectations(path)])
    found = {finding.result.case_id: str(finding.unexpected) for finding in judgement.unexpected}
    return found | {str(one): "stale" for _, _, one in judgement.stale}


def test_only_what_nobody_expected_is_told(store, tmp_path):
    record = run(store, {
        "add": ["mismatch", "pass", "crash", "unsupported"], "sub": ["error", "harness-error"],
        "mul": ["flaky", "pass"],
    })  # fmt: skip
    path = written(tmp_path, row("mismatch", op="add") + row("error", op="div"))
    assert judged(store, record, path) == {
        "opinfo:add:float32:1": "improvement",
        "opinfo:add:float32:2": "regression",
        "opinfo:add:float32:3": "change",
        "opinfo:sub:float32:0": "regression",
        "opinfo:sub:float32:1": "regression",
        "opinfo:mul:float32:0": "regression",
        "op = 'div'": "stale",
    }
    judgement = baseline(store, record, [load_expectations(path)])
    assert judgement.counts == {"expected failures": 1, "unexpected": 6, "passes": 1}
    without = baseline(store, record)
    assert sorted(finding.result.outcome for finding in without.unexpected) == [
        "crash", "error", "flaky", "harness-error", "mismatch",
    ]  # fmt: skip


def test_trouble_of_the_harness_cannot_be_hidden(store, tmp_path):
    record = run(store, {"add": ["harness-error"]})
    assert judged(store, record, written(tmp_path, row("crash", op="*"))) == {"opinfo:add:float32:0": "regression"}


def test_rows_about_what_was_not_asked_are_not_stale(store, tmp_path):
    record = run(store, {"add": ["pass"]}, ops=["add"], limit=1)
    text = row("crash", op="sub") + row("crash", case="opinfo:add:float32:7") + row("crash", op="add", dtype="int8")
    path = written(tmp_path, text + row("crash", case="opinfo:add:float32:0:odd"))
    assert judged(store, record, path) == {}
    assert baseline(store, record, [load_expectations(path)]).out_of_scope == 4


def test_a_backend_that_was_not_run_to_the_end_has_no_stale_rows(store, tmp_path):
    record = run(store, {"add": ["pass"]})
    path = written(tmp_path, row("crash", op="zeta"))
    assert judged(store, record, path) == {"op = 'zeta'": "stale"}
    store.finish(record.run, "finished", {"linalg": "no worker can start"})
    assert judged(store, store.run(record.run), path) == {}
    with pytest.raises(InputError, match="could not run linalg to the end: no worker can start"):
        check_complete(store.run(record.run), ["linalg"])
    store.finish(record.run, "interrupted")
    with pytest.raises(InputError, match=r"did not finish \(interrupted\).*--resume r1"):
        check_complete(store.run(record.run), ["linalg"])


def test_files_and_backends(tmp_path):
    file = load_expectations(written(tmp_path, ""))
    with pytest.raises(InputError, match='expectations of backend "linalg", but this run tries eager, tosa'):
        files_by_backend([file], {"tosa", "eager"}, "this run")
    with pytest.raises(InputError, match=r'backend "linalg" has its expectations in .* already'):
        files_by_backend([file, file], {"linalg"}, "this run")


def test_a_new_file_says_how_the_run_came(store, tmp_path):
    record = run(store, {
        "add": ["crash"] * 3, "sub": ["mismatch", "pass"], "mul": ["flaky"], "a[b": ["error"] * 2,
        "div": ["pass", "unsupported", "untested", "fallback", "ill-conditioned"], "neg": ["harness-error", "oom"],
    })  # fmt: skip
    store.record(record.run, verdict("add", 10, "timeout", "line one\x1b[31m\nline two", "strided"))
    store.record(record.run, verdict("add", 9, "timeout", "", "strided"))
    store.record(record.run, verdict("add", 8, "pass", "", "strided"))
    path = tmp_path / "new.toml"
    result = update_document(new_document(path, "linalg"), store, record)
    assert (result.kept, len(result.added), result.removed, result.skipped) == (0, 7, (), 1)
    result.write()
    found = [(one.selectors, one.outcomes, one.reason) for one in load_expectations(path).rows]
    group = {"source": "opinfo", "dtype": "float32", "variant": "default"}
    assert found == [
        (group | {"op": "a[[]b"}, ("error",), "TODO reason: a[b error 0"),
        (group | {"op": "add"}, ("crash",), "TODO reason: add crash 0"),
        ({"case": "opinfo:add:float32:9:strided"}, ("timeout",), "TODO reason: no message"),
        ({"case": "opinfo:add:float32:10:strided"}, ("timeout",), "TODO reason: line one␛[31m"),
        ({"case": "opinfo:mul:float32:0"}, ("flaky", "pass"), "TODO reason: mul flaky 0"),
        ({"case": "opinfo:neg:float32:1"}, ("oom",), "TODO reason: neg oom 1"),
        ({"case": "opinfo:sub:float32:0"}, ("mismatch",), "TODO reason: sub mismatch 0"),
    ]
    assert judged(store, record, path) == {"opinfo:neg:float32:0": "regression"}
    assert baseline(store, record, [load_expectations(path)]).todo == 7
    again = update_document(read_document(path), store, record)
    assert again.text == path.read_text() and (again.kept, again.added) == (7, ())


def test_a_run_of_the_first_samples_says_nothing_about_the_others(store, tmp_path):
    record = run(store, {"add": ["crash"] * 2, "sub": ["pass"]}, limit=2)
    assert [str(one) for one in update_document(new_document(tmp_path / "n.toml", "linalg"), store, record).added] == [
        "case = 'opinfo:add:float32:0'", "case = 'opinfo:add:float32:1'",
    ]  # fmt: skip
    path = written(tmp_path, row("crash", op="sub") + row("crash", case="opinfo:sub:float32:*"))
    result = update_document(read_document(path), store, record)
    assert result.removed == () and "opinfo:sub:float32:0" in str(result.added)
    result.write()
    assert judged(store, record, path) == {}


KEPT = '''# Known trouble of linalg.
backend = "linalg"   # the built-in one

# ---- elementwise ------------------------------

# add: see the issue
[[expect]]
op = "add"
outcome = "mismatch"    # since ever
reason = """
  two lines,

[[expect]]
# of which one looks like a row"""
issue = "https://example.org/1"
# a word after it

# sub: fixed
[[expect]]
op = "sub"
outcome = "crash"
reason = "gone"
# goes with it

# ---- the rest ---------------------------------

# typo
[[expect]]
case = "opinfo:typo:*"
outcome = "crash"
reason = "never was"

[[expect]]
op = "conv"
dtype = "float16"
outcome = "crash"
reason = "not asked here"
'''


def test_what_holds_stays_to_the_byte_and_what_does_not_goes(store, tmp_path):
    record = run(store, {"add": ["mismatch", "mismatch", "pass"], "sub": ["pass"], "mul": ["oom"], "conv": ["pass"]})
    path = tmp_path / "linalg.toml"
    path.write_text(KEPT)
    result = update_document(read_document(path), store, record)
    assert [one.line for one in result.removed] == [19, 28] and result.kept == 2
    gone = KEPT.replace(KEPT[KEPT.index("# sub") : KEPT.index("# ---- the rest")], "")
    gone = gone.replace(gone[gone.index("# typo") : gone.index('[[expect]]\nop = "conv"')], "")
    new = (
        '\n[[expect]]\ncase = "opinfo:add:float32:2"\noutcome = "pass"\nreason = "TODO reason: add pass 2"\n'
        '\n[[expect]]\ncase = "opinfo:mul:float32:0"\noutcome = "oom"\nreason = "TODO reason: mul oom 0"\n'
    )
    assert result.text == gone + new
    result.write()
    assert judged(store, record, path) == {}
    assert update_document(read_document(path), store, record).text == result.text


def test_line_ends_of_windows_stay(store, tmp_path):
    record = run(store, {"add": ["crash", "pass"], "sub": ["oom"]})
    path = tmp_path / "linalg.toml"
    path.write_bytes(('backend = "linalg"\n' + row("oom", op="sub")).replace("\n", "\r\n").encode())
    update_document(read_document(path), store, record).write()
    assert b"\n" not in path.read_bytes().replace(b"\r\n", b"") and judged(store, record, path) == {}


def test_a_row_that_goes_uncovers_the_one_before_it(store, tmp_path):
    record = run(store, {"add": ["pass", "pass"], "sub": ["crash"]})
    path = written(tmp_path, row("crash", "all", source="opinfo") + row("crash", op="add"))
    result = update_document(read_document(path), store, record)
    result.write()
    assert judged(store, record, path) == {} and [one.reason for one in result.removed] == ["known"]
    assert [(one.selectors.get("op"), one.outcomes) for one in result.added] == [("add", ("pass",))]


def test_a_covered_row_about_the_same_cases_moves_with_its_reason(store, tmp_path):
    record = run(store, {"add": ["pass"]}, limit=1)
    one = row("pass", "fixed", case="opinfo:add:float32:0") + 'issue = "https://example.org/2"\n'
    path = written(tmp_path, one + row("crash", op="add"))
    result = update_document(read_document(path), store, record)
    result.write()
    assert path.read_text() == 'backend = "linalg"\n' + row("crash", op="add") + one
    assert judged(store, record, path) == {}


def test_the_messages_of_a_backend_cannot_write_rows(store, tmp_path):
    evil = '"\n[[expect]]\ncase = "*"\noutcome = "crash"\nreason = """\\u0022\\'
    record = run(store, {})
    for index, message in enumerate(
        [evil, "{evil} %s {0.__class__}", "\x7f\ud7ff\U0001f600", "'''", "=cmd|' /C calc'!A0"]
    ):
        store.record(record.run, verdict("add", 2 * index, "crash", message))
        store.record(record.run, verdict("add", 2 * index + 1, "pass"))
    path = tmp_path / "new.toml"
    update_document(new_document(path, "linalg"), store, record).write()
    found = load_expectations(path).rows
    assert len(found) == 5 and all(one.case.startswith("opinfo:add:float32:") for one in found)
    assert found[1].reason == "TODO reason: {evil} %s {0.__class__}"


@pytest.mark.parametrize("op", ["../../../etc/passwd", "a'; DROP TABLE runs; --", "-rf", "*", "[x]", 'a"b\\', "é:é"])
def test_hostile_ops_are_names_like_others(store, tmp_path, op):
    record = run(store, {op: ["crash", "pass"], "other": ["pass"]})
    path = tmp_path / "new.toml"
    update_document(new_document(path, "linalg"), store, record).write()
    assert judged(store, record, path) == {} and len(load_expectations(path).rows) == 1
    assert sorted(one.name for one in tmp_path.iterdir() if one.suffix == ".toml") == ["new.toml"]


def test_an_id_with_control_characters_is_matched_by_a_pattern(store, tmp_path):
    record = run(store, {"add\x1b[2J": ["crash", "pass"], "sub\0": ["crash", "crash"]})
    result = update_document(new_document(tmp_path / "new.toml", "linalg"), store, record)
    assert [row.selectors for row in result.added] == [
        {"case": "opinfo:add?[[]2J:float32:0"},
        {"source": "opinfo", "op": "sub?", "dtype": "float32", "variant": "default"},
    ]
    assert update_document(parse_document(result.text, result.path), store, record).text == result.text


def test_a_file_that_cannot_be_written_stays(store, tmp_path, monkeypatch):
    record = run(store, {"add": ["crash"]})
    path = written(tmp_path, "")
    result = update_document(read_document(path), store, record)
    before = path.read_bytes()

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(InputError, match="No space left"):
        result.write()
    assert path.read_bytes() == before and [one.name for one in tmp_path.glob(".*")] == []


OUTCOMES = st.sampled_from([str(outcome) for outcome in Outcome if outcome != Outcome.HARNESS_ERROR])
RUNS = st.dictionaries(st.sampled_from(["add", "sub", "mul"]), st.lists(OUTCOMES, min_size=1, max_size=3), min_size=1)
SELECTORS = st.sampled_from([
    ("op", "add"), ("op", "*"), ("op", "[!a]*"), ("case", "opinfo:add:float32:0"), ("case", "opinfo:sub:*"),
    ("case", "*:1"), ("dtype", "float32"), ("dtype", "int8"), ("op", "nowhere"),
])  # fmt: skip
FILES = st.lists(st.tuples(SELECTORS, OUTCOMES), max_size=5, unique_by=lambda one: one[0])


@settings(max_examples=25, deadline=None)
@given(RUNS, FILES, st.sampled_from([None, 1, 3]))
def test_after_an_update_the_run_is_as_expected_and_another_changes_nothing(tmp_path_factory, outcomes, rows, limit):
    path = tmp_path_factory.mktemp("update") / "results.sqlite"
    text = 'backend = "linalg"\n' + "".join(row(outcome, **{name: value}) for (name, value), outcome in rows)
    with Store(path) as store:
        record = run(store, outcomes, limit=limit)
        result = update_document(parse_document(text, Path("f.toml")), store, record)
        document = parse_document(result.text, Path("f.toml"))
        assert baseline(store, record, [document.expectations]).ok
        again = update_document(document, store, record)
        assert again.text == result.text
