"""The report says what the store holds: counts, reasons, transitions, and the same bytes every time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchstone.conformance.execution.verdict import Outcome
from torchstone.conformance.store import Store
from torchstone.reports.aggregate import message_pattern
from torchstone.reports.model import build_report
from torchstone.reports.outcomes import FAILING, LISTED, LOOKS, ORDER, worst
from torchstone.reports.results import ReportError, load_results, scope

from .conftest import FIRST, SECOND, verdict


def report(path: Path, *runs: str, against: str | None = None) -> dict[str, Any]:
    with Store(path, create=False) as store:
        return build_report(load_results(store, runs), load_results(store, [against]) if against else None)


def test_every_outcome_has_a_look_of_its_own() -> None:
    assert sorted(ORDER) == sorted(str(outcome) for outcome in Outcome)
    assert len({look.symbol for look in LOOKS}) == len(LOOKS)
    assert "untested" not in LISTED and "harness-error" in LISTED and "harness-error" not in FAILING


def test_colours_can_be_read() -> None:
    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for look in LOOKS:
        for back, text, _ in (look.light, look.dark):
            dark, light = sorted((luminance(back), luminance(text)))
            assert (light + 0.05) / (dark + 0.05) >= 4.5, look.outcome  # WCAG AA


def test_summary_counts(filled: Path) -> None:
    rows = {row["backend"]: row for row in report(filled)["backends"]}
    assert list(rows) == ["eager", "linalg", "tosa"]
    linalg = rows["linalg"]
    assert linalg["cases"] == 7
    assert linalg["outcomes"] == {"pass": 2, "crash": 1, "mismatch": 1, "unsupported": 2, "untested": 1}
    assert next(iter(linalg["outcomes"])) == "pass"
    assert linalg["failing"] == 2
    assert linalg["ops"] == {"total": 3, "complete": 1, "partial": 0, "none": 2, "untested": 1}
    assert linalg["untested_ops"] == ["svd"]
    assert linalg["seconds"] == 3.5
    assert rows["tosa"]["ops"] == {"total": 3, "complete": 0, "partial": 2, "none": 1, "untested": 1}
    assert rows["eager"]["failing"] == 0
    assert [rows[name]["unproven"] for name in rows] == [0, 1, 0]
    assert [rows[name]["eager_further"] for name in rows] == [0, 0, 1]
    with Store(filled, create=False) as store:
        assert store.noted("r1", "eager_further") == {"tosa": 1}


def test_the_report_and_the_run_count_passing_ops_alike(filled: Path) -> None:
    with Store(filled, create=False) as store:
        told = store.passing_ops("r1")
    counted = {row["backend"]: (row["ops"]["complete"], row["ops"]["total"]) for row in report(filled)["backends"]}
    assert counted == told


def test_stages_count_what_reaches_them_and_what_stops_there(filled: Path) -> None:
    linalg = next(row for row in report(filled)["backends"] if row["backend"] == "linalg")
    reached = {stage["stage"]: stage["reached"] for stage in linalg["stages"]}
    assert reached == {"capture": 6, "lower": 5, "compile": 4, "run": 4, "compare": 3}
    stopped = {stage["stage"]: stage["stopped"] for stage in linalg["stages"]}
    assert stopped["capture"] == {"unsupported": 1} and stopped["run"] == {"crash": 1}
    assert stopped["compare"] == {"mismatch": 1} and stopped["compile"] == {}
    # what is left after every stop is what passes
    for before, after in zip(linalg["stages"], linalg["stages"][1:], strict=False):
        assert before["reached"] - sum(before["stopped"].values()) == after["reached"]


def test_matrix_holds_every_case_once(filled: Path) -> None:
    data = report(filled)
    assert data["ops"] == ["add", "fft", "mul", "svd"] and data["dtypes"] == ["bool", "float32"]
    assert sum(sum(cell["outcomes"].values()) for cell in data["matrix"]) == len(FIRST)
    cell = next(c for c in data["matrix"] if (c["backend"], c["op"], c["dtype"]) == ("tosa", "add", "float32"))
    assert cell["outcomes"] == {"pass": 1, "unsupported": 1}
    assert worst(cell["outcomes"]) == "unsupported"
    assert not [c for c in data["matrix"] if c["op"] == "add" and c["dtype"] == "bool"]


def test_listed_cases_have_message_evidence_and_replay(filled: Path) -> None:
    cases = report(filled)["cases"]
    assert [(c["backend"], c["outcome"], c["op"]) for c in cases] == [
        ("linalg", "crash", "mul"), ("linalg", "mismatch", "mul"), ("tosa", "crash", "mul"),
    ]  # fmt: skip
    assert cases[1]["evidence"] == {"got": "nan", "eager": 2.5}
    assert cases[1]["replay"] == "torchstone replay opinfo:mul:float32:0 --backend linalg"
    assert cases[1]["signature"] == "got N, eager N at [N]"


def test_replay_command_is_quoted_for_the_shell(make_store: Callable[..., Path]) -> None:
    path = make_store([verdict("pkg.mod:Back end", "a;rm -rf:float32:0", "error", message="m")])
    assert report(path)["cases"][0]["replay"] == (
        "torchstone replay 'opinfo:a;rm -rf:float32:0' --backend 'pkg.mod:Back end'"
    )


def test_reasons_are_ranked_by_the_ops_they_block(filled: Path) -> None:
    rows = report(filled)["unsupported"]
    assert [(r["backend"], r["reason"], r["cases"], r["ops"], r["alone"]) for r in rows] == [
        ("linalg", "aten._fft_r2c.default", 1, {"fft": 1}, []),
        ("linalg", "aten.complex.default", 1, {"fft": 1}, []),
        ("tosa", "aten._fft_r2c.default", 2, {"fft": 2}, ["fft"]),
        ("tosa", "aten.add.Scalar", 1, {"add": 1}, ["add"]),
    ]
    assert rows[0]["stages"] == ["lower"]


def test_untested_is_told_once_and_blamed_on_no_backend(filled: Path) -> None:
    data = report(filled)
    row = {"op": "svd", "reason": "a generator cannot be expressed", "dtypes": ["float32"], "cases": 1}
    assert data["untested"] == [row]
    assert not any(row["op"] == "svd" for row in data["cases"]) and "svd" not in str(data["unsupported"])


def test_lonely_failures(filled: Path) -> None:
    # mul:float32 fails on linalg and passes on tosa; mul:bool fails on both, and eager's pass is no evidence
    assert report(filled)["lonely"] == [
        {"backend": "linalg", "op": "mul", "outcome": "mismatch", "cases": ["opinfo:mul:float32:0"]}
    ]


def test_against_names_regressions_and_fixes(make_store: Callable[..., Path]) -> None:
    path = make_store(FIRST, SECOND)
    changes = report(path, "r2", against="r1")["against"]
    assert changes["backends"] == ["linalg"] and changes["only_before"] == ["eager", "tosa"]
    regressions = [(c["case_id"], c["before"], c["after"]) for c in changes["regressions"]]
    assert regressions == [
        ("opinfo:add:float32:0", "pass", "error"), ("opinfo:new:float32:0", "absent", "error"),
    ]  # fmt: skip
    assert [c["case_id"] for c in changes["fixes"]] == ["opinfo:fft:float32:0", "opinfo:mul:float32:0"]
    assert changes["unchanged"] == 2
    moved = {(row["before"], row["after"]): row["cases"] for row in changes["transitions"]}
    assert moved[("crash", "mismatch")] == 1 and moved[("untested", "absent")] == 1


def test_a_run_against_itself_has_no_changes(filled: Path) -> None:
    changes = report(filled, against="r1")["against"]
    assert not changes["transitions"] and not changes["regressions"] and changes["unchanged"] == len(FIRST)


def test_several_runs_are_one_report_and_the_later_verdict_counts(make_store: Callable[..., Path]) -> None:
    path = make_store(FIRST, SECOND)
    data = report(path, "r2", "r1")
    assert [run["run"] for run in data["runs"]] == ["r1", "r2"]
    linalg = next(row for row in data["backends"] if row["backend"] == "linalg")
    assert linalg["cases"] == 8 and linalg["outcomes"]["error"] == 2 and "crash" not in linalg["outcomes"]


def test_the_newest_run_is_the_default(make_store: Callable[..., Path]) -> None:
    assert [run["run"] for run in report(make_store(FIRST, SECOND))["runs"]] == ["r2"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "all ops; all dtypes; every sample"),
        ({"ops": ["add", "nn.*"], "dtypes": ["float32"], "limit": 1},
         "ops add, nn.*; float32; the first sample of each op and dtype"),
        ({"ops": None, "dtypes": None, "limit": 10}, "all ops; all dtypes; the first 10 samples of each op and dtype"),
    ],
)  # fmt: skip
def test_a_run_says_what_it_covers(options: dict[str, Any], expected: str) -> None:
    assert scope(options) == expected


def test_a_run_without_verdicts_is_refused(make_store: Callable[..., Path]) -> None:
    with pytest.raises(ReportError, match="no verdicts in r1"):
        report(make_store([]))


def test_report_is_strict_json_and_the_same_every_time(filled: Path) -> None:
    text = json.dumps(report(filled), allow_nan=False)
    assert text == json.dumps(report(filled), allow_nan=False)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("\n  op at 0x7ffe12ab failed\nmore", "op at 0x… failed"),
        ("worst at [1, 2]: got -1.5e-3, eager nan", "worst at [N]: got N, eager N"),
        ("shape (3, 4) against (3,)", "shape [N] against [N]"),
        ("float64 says no in conv2d of aten.add.Tensor", "float64 says no in conv2d of aten.add.Tensor"),
        ("cannot open /tmp/x1/y.so: gone", "cannot open …: gone"),
        ("", "no reason given"),
    ],
)
def test_signature_drops_what_differs_from_case_to_case(message: str, expected: str) -> None:
    assert message_pattern(message) == expected
