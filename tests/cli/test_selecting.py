"""``torchstone run``'s options that choose cases, end to end: what is asked, what is remembered, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchstone import cli
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
