"""``torchstone run``'s options that choose cases, end to end: what is asked, what is remembered, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torchstone import cli
from torchstone.cli.selection_options import PLANNED_SOURCES, run_options
from torchstone.conformance.selection.effort import Effort
from torchstone.conformance.store import Store

pytestmark = pytest.mark.usefixtures("fork_server")


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], tmp_path: Path):
    def run(*args: object) -> tuple[int, str]:
        code = cli.invoke(["run", *map(str, args), "--jobs", "1", "--store", str(tmp_path / "results.sqlite")])
        return code, capfd.readouterr().err

    return run


def test_runs_remember_what_they_were_asked(run, tmp_path: Path) -> None:
    assert run("-b", "eager", "--case", "corpus:var*", "--shard", "1/1")[0] == 0
    code, err = run("--last-failed", "latest")
    assert code == 2 and "selects nothing: every case passed (eager in r1)" in err
    assert run("-b", "eager", "--source", "corpus", "--tag", "refused", "--op", "!cat*")[0] == 0
    with Store(tmp_path / "results.sqlite") as db:
        assert set(db.case_ids("r1")) == {"corpus:var-of-nothing:float32:0"}
        assert set(db.case_ids("r2")) == {"corpus:amax-out-of-another-dtype:float32:0"}
        assert len(db.run_list()) == 2, "a selection of nothing is no run"


NAMES = (
    "backend", "source", "corpus", "op", "dtype", "variant", "limit", "effort", "tag", "case", "shard", "last_failed",
    "changed_since", "store",
)  # fmt: skip
PLANNED = {"effort": "standard", "budget": Effort.standard.budget, "dtypes": None, "variants": ["all"]}
WHOLE = {"dtypes": ["float32"], "variants": ["default"]}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({}, {**PLANNED, "sources": PLANNED_SOURCES, "limit": None}),
        ({"op": ["add"], "tag": ["view"], "shard": "1/2"}, {**PLANNED, "sources": PLANNED_SOURCES}),
        ({"source": ["modules"]}, {**PLANNED, "sources": ["modules"]}),
        ({"effort": Effort.quick, "dtype": ["int64"]}, {"effort": "quick", "dtypes": ["int64"], "variants": ["all"]}),
        ({"limit": 3}, {**WHOLE, "sources": ["opinfo"], "limit": 3}),
        ({"dtype": ["int64"]}, {"dtypes": ["int64"], "variants": ["default"], "sources": ["opinfo"]}),
        ({"variant": ["strided"]}, {"dtypes": ["float32"], "variants": ["strided"], "sources": ["opinfo"]}),
        ({"case": ["opinfo:add"]}, {"dtypes": None, "variants": ["default"], "sources": ["opinfo"]}),
        ({"corpus": [Path("/cases")]}, {"dtypes": None, "variants": ["default"], "sources": ["corpus=/cases"]}),
    ],
)
def test_a_run_follows_the_plan_unless_samples_dtypes_variants_or_cases_are_given(
    given: dict[str, Any], meant: dict[str, Any]
) -> None:
    options = run_options(**dict.fromkeys(NAMES) | {"backend": ["eager"]} | given)
    assert {name: options[name] for name in meant} == meant
    assert ("effort" in options) == ("budget" in options) == ("effort" in meant)


def test_a_run_asks_what_the_plan_shows(run, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert cli.invoke(["run", "--op", "neg", "--plan"]) == 0
    shown = {line.split()[0] for line in capfd.readouterr().out.splitlines() if line.startswith(("opinfo:", "errors:"))}
    assert run("-b", "eager", "--op", "neg")[0] == 0
    with Store(tmp_path / "results.sqlite") as db:
        assert set(db.case_ids("r1")) == shown
        assert sum(name.startswith("opinfo:") for name in shown) == Effort.standard.budget
        assert db.run("r1").options["budget"] == Effort.standard.budget
