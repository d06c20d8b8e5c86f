"""Which cases a run asks: shards partition, tags, ids and patterns select, earlier verdicts are remembered."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchstone.conformance.errors import InputError, UnknownName
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.program.case import Case, Untested
from torchstone.conformance.selection.earlier_runs import EarlierRuns, changed_outcomes, not_passed
from torchstone.conformance.selection.filters import Pattern, Shard, has_wanted_tag
from torchstone.conformance.selection.selection import select_cases
from torchstone.conformance.sources import opinfo, select
from torchstone.conformance.store import Store

IDS = [f"opinfo:{op}:{dtype}:{i}" for op in ("add", "nn.functional.relu") for dtype in ("f", "g") for i in range(1000)]
BASE = {"sources": ["corpus"], "ops": None, "dtypes": None, "variants": ["default"], "limit": None}


def asked(**options: object) -> list[str]:
    return [entry.id for entry in select_cases(BASE | options).entries()]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.text(min_size=1))
def test_every_case_is_in_exactly_one_shard(count: int, name: str) -> None:
    assert sum(Shard(number, count).holds(name) for number in range(1, count + 1)) == 1


def test_shards_are_balanced_and_the_same_for_ever() -> None:
    sizes = Counter(next(n for n in range(1, 9) if Shard(n, 8).holds(name)) for name in IDS)
    assert len(sizes) == 8 and all(abs(size - 500) < 120 for size in sizes.values())  # within six standard deviations
    assert [name for name in IDS[:40] if Shard(1, 8).holds(name)] == [
        f"opinfo:add:f:{i}" for i in (8, 17, 19, 21, 30, 32)
    ]


@pytest.mark.parametrize("text", ["", "3", "0/2", "3/2", "1/0", "a/2", "1/2/3", "-1/2", "1 /2"])
def test_shards_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="like 2/5"):
        Shard.parse(text)


def test_patterns_of_ids() -> None:
    def means(text: str, name: str, asked: tuple[str, ...] = ("default",)) -> bool:
        return Pattern.parse(text).matches(name, asked)

    assert means("opinfo:add", "opinfo:add:float32:3") and means("*:a?d:*:3", "opinfo:add:float32:3")
    assert not means("opinfo:a", "opinfo:add:float32:3") and not means("opinfo:*:3", "opinfo:add:float32:3")
    assert not means("opinfo:add", "opinfo:add:float32:3:strided")
    assert means("opinfo:add", "opinfo:add:float32:3:strided", ("strided",))
    assert means("opinfo:add:*:*:str*", "opinfo:add:float32:3:strided")
    for text in ("", "a::b", "a:b:c:d:e:f", ":add"):
        with pytest.raises(InputError, match="no case id or pattern"):
            Pattern.parse(text)


def test_tags_agree_when_one_is_there_and_none_left_out() -> None:
    tags = {"fft", "backward"}
    assert has_wanted_tag(tags, ["fft"]) and has_wanted_tag(tags, ["view", "fft"]) and has_wanted_tag(tags, ["!view"])
    assert (
        not has_wanted_tag(tags, ["view"])
        and not has_wanted_tag(tags, ["fft", "!backward"])
        and not has_wanted_tag(tags, ["!fft"])
    )


def test_names_behind_a_mark_are_left_out() -> None:
    every = select(["models"], None)["models"]
    assert select(["models"], ["!mlp"])["models"] == [name for name in every if name != "mlp"]
    assert select(["models"], ["m*", "!mlp"])["models"] == [n for n in every if n.startswith("m") and n != "mlp"]
    with pytest.raises(UnknownName):
        select(["models"], ["!mpl"])
    with pytest.raises(InputError, match="selects nothing: no op is left of mlp, !m"):
        select_cases(BASE | {"sources": ["models"], "ops": ["mlp", "!m*"]})


def test_shards_of_a_run_partition_it() -> None:
    every = asked()
    parts = [asked(shard=f"{number}/3") for number in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(every) and len(set(every)) == len(every) >= 8


def test_tags_and_ids_select_cases() -> None:
    refused = asked(tags=["refused"])
    assert refused and all("out" in name for name in refused)
    assert set(asked(tags=["!refused"])) == set(asked()) - set(refused)
    assert asked(tags=["reduction", "!refused"]) and set(asked(tags=["reduction", "!refused"])) < set(asked())
    assert asked(cases=["corpus:var*"]) == asked(cases=["corpus:var-of-nothing:float32:0"])
    assert asked(cases=["*:var*:*:0:strided"], variants=["default"])[0].endswith(":strided")
    with pytest.raises(UnknownName, match=r'unknown tag "reductoin".*did you mean "reduction"'):
        asked(tags=["reductoin"])
    with pytest.raises(InputError, match=r"selects nothing: of \d+ ops none is tagged fft"):
        asked(tags=["fft"])
    with pytest.raises(InputError, match=r"selects nothing: of \d+ ops none matches --case"):
        asked(cases=["opinfo:add"])
    with pytest.raises(InputError, match="var-of-nothing has no sample 7"):
        asked(cases=["corpus:var-of-nothing:float32:7"])
    with pytest.raises(InputError, match="selects nothing: of 1 ops none has a case of dtypes int64"):
        asked(ops=["var*"], dtypes=["int64"])


def test_what_did_not_pass_and_what_changed() -> None:
    before = {"a": "pass", "b": "crash", "c": "untested", "d": "unsupported", "e": "fallback"}
    assert not_passed(before) == {"b", "d"}
    assert changed_outcomes(before, {"a": "pass", "b": "pass", "d": "error", "f": "pass"}) == {"b", "d", "f"}


def journal(db: Store, backend: str, **outcomes: str) -> None:
    run = db.new_run("torchstone run", BASE | {"backends": [backend]}, {})
    for name, outcome in outcomes.items():
        case = f"corpus:{name.replace('_', '-')}:float32:0"
        db.record(run, Verdict(case, backend, "corpus", name, "float32", "default", Stage.RUN, Outcome(outcome)))
    db.finish(run)


def test_earlier_runs_are_remembered_per_backend(tmp_path: Path) -> None:
    with Store(tmp_path / "results.sqlite") as db:
        journal(db, "one", var_of_nothing="crash", logspace_of_one_step="pass")
        journal(db, "two", var_of_nothing="pass", logspace_of_one_step="unsupported")
        last = EarlierRuns.since("last-failed", db, "latest", ["one", "two"])
        assert last.runs == {"one": "r1", "two": "r2"} and last.until == "r2"
        found = select_cases(BASE | {"earlier": last._asdict()}, db)
        assert [entry.id for entry in found.entries()] == [
            "corpus:logspace-of-one-step:float32:0",
            "corpus:var-of-nothing:float32:0",
        ]
        assert found.wanted == {
            "one": {"corpus:var-of-nothing:float32:0"},
            "two": {"corpus:logspace-of-one-step:float32:0"},
        }
        with pytest.raises(InputError, match="selects nothing: backend three was not in r1"):
            EarlierRuns.since("last-failed", db, "r1", ["three"])
        journal(db, "one", var_of_nothing="pass")
        journal(db, "one", logspace_of_one_step="pass")
        since = EarlierRuns.since("changed-since", db, "r1", None)
        journal(db, "one", logspace_of_one_step="crash")  # after the run was asked for
        assert since.ids(db) == {"one": {"corpus:var-of-nothing:float32:0"}}
        with pytest.raises(InputError, match=r"selects nothing: no verdict has changed since \(one in r5"):
            select_cases(BASE | {"earlier": EarlierRuns.since("changed-since", db, "latest", ["one"])._asdict()}, db)


@pytest.mark.parametrize("options", [{"limit": 1}, {"effort": "quick"}])
def test_an_op_whose_samples_end_the_process_is_untested_and_the_others_are_asked(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    original = opinfo.iterate

    def iterate(ops: list[str], *more: Any) -> Any:
        return os.abort() if ops == ["neg"] else original(ops, *more)

    monkeypatch.setattr(opinfo, "iterate", iterate)
    base = {"sources": ["opinfo"], "ops": ["add", "neg", "sub"], "dtypes": ["float32"]}
    entries = list(select_cases(base | options).entries())
    assert {entry.op for entry in entries if isinstance(entry, Case)} == {"add", "sub"}
    (told,) = (entry for entry in entries if isinstance(entry, Untested))
    assert (told.op, told.reason) == ("neg", "making its inputs crashed eager: killed by SIGABRT")
