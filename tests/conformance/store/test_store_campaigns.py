"""Campaigns in a store: kept beside the runs, and never taken for one."""

from __future__ import annotations

import json

import pytest

from torchstone.conformance.store import (
    Campaign,
    Store,
    StoreError,
    campaigns,
    finding_case,
    now,
    record_campaign,
)

from .test_store import new_run, verdict

FINDING = {"name": "mismatch-sub", "signature": "s", "message": "m", "seen": 2, "blames": ["sub"]}
RECORD = {
    "programs": 9, "seed": 3, "seconds": 1.5, "finished": False, "interrupted": False, "outcomes": {"pass": 8},
    "ops": {"torch.sub": 4}, "drafts": {"programs": 10, "programs_kept": 9}, "findings": [FINDING],
}  # fmt: skip


def campaign(**more) -> Campaign:
    return Campaign("eager", "/out", now(), "torchstone fuzz", RECORD | more)


def test_a_campaign_that_goes_on_is_the_same_one(tmp_path):
    with Store(tmp_path / "store") as store:
        record_campaign(store, campaign(), {"mismatch-sub": b"one", "gone": b"two"})
        record_campaign(store, campaign(programs=20, finished=True), {"mismatch-sub": b"smaller"})
    with Store(tmp_path / "store", readonly=True) as store:
        (found,) = campaigns(store)
        assert found.record["programs"] == 20 and found.record["findings"] == [FINDING]
        assert finding_case(store, "eager", "/out", "mismatch-sub") == b"smaller"
        assert finding_case(store, "eager", "/out", "gone") is None


def test_a_campaign_is_no_run(tmp_path):
    with Store(tmp_path / "store") as store:
        record_campaign(store, campaign(), {})
        with pytest.raises(StoreError, match="no runs"):
            store.run("latest")
        run = new_run(store)
        store.record(run, verdict(0))
        store.finish(run)
        record_campaign(store, campaign(), {})
        assert store.run("latest").run == run
        assert [record.run for record in store.run_list()] == [run]


@pytest.mark.parametrize(
    "changed",
    [{"outcomes": {"fine": 1}}, {"programs": "9"}, {"seconds": float("inf")}, {"findings": [{}]}, {"ops": []}],
    ids=lambda changed: next(iter(changed)),
)
def test_what_somebody_else_wrote_is_checked(tmp_path, changed):
    with Store(tmp_path / "store") as store:
        record_campaign(store, campaign(), {})
        store._db.execute("UPDATE campaigns SET record = ?", (json.dumps(RECORD | changed),))
        with pytest.raises(StoreError, match="the campaign in '/out' does not read"):
            campaigns(store)
