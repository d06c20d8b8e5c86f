"""The corpus: what campaigns keep for the next one, and what is given up again."""

from __future__ import annotations

import json
import platform
import shutil
from math import gcd

import pytest
import torch

from torchstone.conformance.execution.later_calls import TURNS
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz import campaign
from torchstone.fuzz.campaign import CampaignOptions, run_campaign
from torchstone.fuzz.corpus import FUNCTIONS, SUFFIX, Corpus
from torchstone.fuzz.generator.catalog import select_rules


def case(*ops: str) -> Case:
    names = ["x", *(f"v{at}" for at in range(len(ops)))]
    calls = tuple(Call(f"torch.{op}", (Ref(names[at]),), {}, names[at + 1]) for at, op in enumerate(ops))
    return Case(Program(("x",), calls, Ref(names[-1])), {"x": torch.ones(2)}, "fuzz", "+".join(ops), "float32")


def test_the_last_ones_come_first_and_each_is_kept_once(tmp_path):
    corpus = Corpus(tmp_path / "corpus")
    assert len(corpus) == 0 and list(corpus.cases()) == []
    for op in ("sin", "cos", "tan"):
        corpus.keep(case(op))
    again = Corpus(tmp_path / "corpus")
    found = list(again.cases())
    assert [one.op for one in found] == ["tan", "cos", "sin"]
    again.keep(found[0])
    again.drop(found[1])
    again.drop(case("sin"))
    assert [one.op for one in Corpus(tmp_path / "corpus").cases()] == ["tan", "sin"]
    Corpus(tmp_path / "corpus").keep(case("exp"))
    assert [one.op for one in Corpus(tmp_path / "corpus").cases()] == ["exp", "tan", "sin"]


def test_what_is_not_wanted_or_cannot_be_read_stays_where_it_is(tmp_path):
    corpus = Corpus(tmp_path)
    corpus.keep(case("sin"))
    (tmp_path / "000007-damaged.safetensors").write_bytes(b"no case")
    (tmp_path / "notes.txt").write_text("mine")
    again = Corpus(tmp_path)
    assert list(again.cases(lambda one: one.op == "cos")) == []
    assert [file.name for file in again.unreadable] == ["000007-damaged.safetensors"]
    again.keep(case("cos"))
    shutil.copy(next(tmp_path.glob("000001-*")), tmp_path / "000001-another.safetensors")
    same = Corpus(tmp_path)
    assert len(list(same.in_turn(same.cases(), list))) == 3, "of the same number, too"
    (tmp_path / "000001-another.safetensors").unlink()
    assert len(list(tmp_path.iterdir())) == 4 and (tmp_path / "000007-damaged.safetensors").exists()


def test_without_a_folder_nothing_is_kept():
    corpus = Corpus(None)
    corpus.keep(case("sin"))
    assert list(corpus.cases()) == []


def test_it_knows_what_passed(tmp_path):
    corpus = Corpus(tmp_path)
    corpus.keep(case("sin"), passed=True)
    corpus.keep(case("cos"))
    again = Corpus(tmp_path)
    assert {one.op: again.has_passed(one) for one in again.cases()} == {"sin": True, "cos": False}
    assert all(one.tags == () for one in again.cases()), "the program is the one that was asked"


def test_it_knows_the_functions_of_the_last_time(tmp_path):
    Corpus(tmp_path).note({"a.py:f": ["1"], "a.py:g": ["2"]})
    Corpus(tmp_path).note({"a.py:g": ["3", "4"]})
    assert Corpus(tmp_path).functions() == {"a.py:f": ["1"], "a.py:g": ["3", "4"]}
    assert len(Corpus(tmp_path)) == 0, "which is no program"
    for text in ("no JSON", "[1]", '{"python": "2.7", "functions": {"a.py:f": ["1"]}}'):
        (tmp_path / FUNCTIONS).write_text(text)
        assert Corpus(tmp_path).functions() == {}
    assert Corpus(None).functions() == {}


def test_of_what_nothing_calls_programs_come_first_that_call_what_is_near(tmp_path):
    corpus = Corpus(tmp_path)
    for op in ("sin", "cos", "tan", "exp"):
        corpus.keep(case(op), called=["a.py:all", "a.py:g"] if op == "sin" else ["a.py:all"])
    corpus.note({"a.py:all": ["1"], "a.py:f": ["2"], "a.py:g": ["3"]})
    again = Corpus(tmp_path)
    assert [one.op for one in again.in_turn(again.cases(), lambda: ["a.py:f"])] == ["sin", "exp", "tan", "cos"]
    for changed in ("a.py:all", "b.py:f"):
        again = Corpus(tmp_path)
        first = next(again.in_turn(again.cases(), [changed].copy))
        assert first.op == "exp", "all call it, or nothing is near"


def test_programs_that_call_what_has_changed_come_first(tmp_path):
    corpus = Corpus(tmp_path)
    for op in ("sin", "cos", "tan", "exp", "sinh", "cosh", "atan"):
        corpus.keep(case(op), called=["all", "f"] if op in ("sin", "tan") else ["all"])
    corpus.keep(case("asin"), called=["all", "g"])
    corpus.keep(case("acos"), called=["all"])
    corpus.note({"all": ["1"], "f": ["2"], "g": ["3"]})
    changed: set[str] = set()
    again = Corpus(tmp_path)
    found = again.in_turn(again.cases(), lambda: changed)
    assert [next(found).op for _ in range(2)] == ["acos", "asin"]
    changed |= {"all", "f"}
    rest = list(found)
    assert [one.op for one in rest] == ["tan", "sin", "atan", "cosh", "sinh", "exp", "cos"], (
        "what all call tells nothing"
    )
    assert [again.came_for(one) for one in rest] == [["f"]] * 2 + [[]] * 5
    again.drop(rest[0])
    again.keep(rest[1], called=["g"])
    again.note({"all": ["1"]})
    callers = json.loads((tmp_path / FUNCTIONS).read_text())["callers"]
    assert callers == {"all": [1, 2, 4, 5, 6, 7, 8, 9], "f": [1], "g": [1, 8]}, "of what is still there"
    for damaged in ("[1]", '{"f": "tan"}', '{"f": ["tan", null]}'):
        text = json.dumps(
            {"python": platform.python_version(), "functions": {"f": ["1"]}, "callers": json.loads(damaged)}
        )
        (tmp_path / FUNCTIONS).write_text(text)
        again = Corpus(tmp_path)
        assert len(list(again.in_turn(again.cases(), lambda: {"f"}))) == 8


REFUSING = """
from torch.overrides import TorchFunctionMode

from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.backends.protocol import BackendUnsupported

class NoSines(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__.startswith("sin"):
            raise BackendUnsupported("no sines today")
        return func(*args, **(kwargs or {}))

class Refusing(Eager):
    name = "refusing"
    def compile(self, program, args):
        with NoSines():
            program(*args)
        return super().compile(program, args)
"""


@pytest.mark.usefixtures("fork_server")
def test_what_passed_before_and_is_refused_now_is_a_finding(tmp_path, monkeypatch):
    (tmp_path / "refusing.py").write_text(REFUSING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    corpus = Corpus(tmp_path / "corpus")
    for ops, passed in ((["exp", "sin", "cos"], True), (["sinh"], False), (["cos"], True)):
        corpus.keep(case(*ops), passed=passed)
    monkeypatch.setattr(campaign._Campaign, "_numbers", lambda self: iter(()))
    options = CampaignOptions("refusing:Refusing", 60.0, 5, tmp_path / "out", corpus=tmp_path / "corpus")
    found = run_campaign(options)
    assert found.tried == 3 and dict(found.outcomes) == {"unsupported": 2, "pass": 1}
    (finding,) = found.findings.ranked()
    assert [call.target for call in finding.best.program.calls] == ["torch.sin"]
    assert finding.best.args[0].dtype == torch.float32 and finding.best.args[0].shape == (2,), "it is a part of it"
    assert finding.script.shows
    told = json.loads((finding.folder / "summary.json").read_text())["message"]
    assert told == "no sines today\na program with these calls passed in an earlier campaign"
    assert told.split("\n")[1] in (finding.folder / "issue.md").read_text()
    assert not list(campaign.not_done(options, found))


@pytest.mark.torture
@pytest.mark.usefixtures("fork_server")
def test_a_campaign_keeps_what_ran_new_lines_and_the_next_one_begins_with_it(tmp_path, monkeypatch):
    rules = select_rules(["sin", "cumsum", "sort"])

    def options(out: str, **changes) -> CampaignOptions:
        return CampaignOptions(
            "linalg", 300.0, 5, tmp_path / out, must=rules, max_ops=1, corpus=tmp_path / "corpus", **changes
        )

    first = run_campaign(options("first", programs=12))
    kept = {file.name for file in (tmp_path / "corpus").glob(f"*{SUFFIX}")}
    assert 0 < len(kept) < 12 and len(first.guidance.lines) > 500
    drawn = {Case.load(tmp_path / "corpus" / name).index for name in kept}
    assert drawn <= set(range(0, 12, campaign.TRACED)), "the others were not traced"
    assert gcd(campaign.TRACED, TURNS) == 1, "those that are traced make all kinds of later calls"

    assert not run_campaign(options("unguided", programs=2, guided=False)).guidance.lines
    assert {file.name for file in (tmp_path / "corpus").glob(f"*{SUFFIX}")} == kept

    monkeypatch.setattr(campaign._Campaign, "_numbers", lambda self: iter(()))
    second = run_campaign(options("second"))
    assert second.tried == len(kept), "it begins with them"
    left = {file.name for file in (tmp_path / "corpus").glob(f"*{SUFFIX}")}
    assert set() < left <= kept
    lost = first.guidance.lines - second.guidance.lines  # of the programs that were not kept, as they were drawn
    assert len(lost) < len(first.guidance.lines) / 20, "and runs what they were kept for"
    rules = select_rules(["tan"])
    (tmp_path / "corpus" / "999999-notes.safetensors").write_text("mine")
    third = run_campaign(options("third"))
    assert third.tried == 0, "none of what is left calls it"
    assert [line for line in campaign.not_done(options("third"), third) if "999999-notes" in line]
