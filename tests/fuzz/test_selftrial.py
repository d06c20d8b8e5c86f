"""The mutants: every one is sound as a row, and a sample of them is found by the suite and the fuzzer."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from torchstone.cli import invoke
from torchstone.compiler.lowering.linalg import build, complexes, elementwise
from torchstone.compiler.runtime.cpu.kernel import CpuKernel
from torchstone.compiler.transforms.expansions import EXPANSIONS
from torchstone.conformance.backends import load
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.run_case import run_case
from torchstone.conformance.mutants import BACKEND_NAME, MUTANTS
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import opinfo
from torchstone.conformance.variants.registry import VARIANTS
from torchstone.fuzz import selftrial
from torchstone.fuzz.selftrial import SelfTrial, TrialResult, cases, trial_cases
from torchstone.fuzz.selftrial import trial as trial_module

pytestmark = pytest.mark.usefixtures("fork_server")
TABLES = (EXPANSIONS._rows, elementwise.FLOAT, elementwise.INT, complexes.RULES, build.STRUCTURED)


def _state() -> list:
    return [*(dict(table) for table in TABLES), dict(vars(CpuKernel))]


def test_the_library_is_large_and_its_classes_have_several_mutants_each():
    groups = Counter(mutant.group for mutant in MUTANTS.values())
    assert len(MUTANTS) >= 150 and len(groups) >= 20
    assert min(groups.values()) >= 3
    assert all(mutant.wrong and name == mutant.name == name.lower() for name, mutant in MUTANTS.items())
    assert len({mutant.wrong + str(mutant.ops) for mutant in MUTANTS.values()}) == len(MUTANTS)


def test_every_op_that_a_mutant_touches_is_in_the_database():
    known = set(opinfo.op_names())
    assert {op for mutant in MUTANTS.values() for op in mutant.ops} <= known
    assert all(mutant.ops for mutant in MUTANTS.values())


def test_mutants_are_applied_for_a_while_only():
    before = _state()
    for mutant in MUTANTS.values():
        with mutant.patch():
            pass
        assert _state() == before, mutant.name


def _case(op: str, dtype: str = "float32", index: int = 0) -> Case:
    return opinfo.case(op, dtype, index)


def test_a_mutant_is_in_its_own_backend_only():
    sub = _case("sub", index=1)
    for name, outcome in ((f"{BACKEND_NAME}+sub-swapped", "mismatch"), (BACKEND_NAME, "pass"), ("linalg", "pass")):
        assert run_case(sub, load(name)).outcome == outcome
    compiled = load(f"{BACKEND_NAME}+sub-swapped").compile_many([(sub.program, sub.fresh_args())])
    assert run_case(sub, load(f"{BACKEND_NAME}+sub-swapped"), compiled[0]).outcome == "mismatch"
    with pytest.raises(InputError, match='no option "sub-swaped"'):
        load(f"{BACKEND_NAME}+sub-swaped")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name",
    [
        "sub-swapped",
        "round-half-away",
        "maximum-without-nan",
        "neg-by-subtraction",
        "gelu-by-tanh",
        "softmax-first-axis",
        "where-inverted",
        "hardsigmoid-gradient",
        pytest.param("softmax-gradient", marks=pytest.mark.torture),
        pytest.param("var-ignores-correction", marks=pytest.mark.torture),
        "unsigned-less-signed",
    ],
)
def test_a_mutant_is_found(name):
    with SelfTrial(limit=4, programs=0) as trial:
        found = trial.try_mutant(MUTANTS[name])
    assert found.detected and found.outcome == "mismatch" and not found.alarms
    assert found.case.split(":")[1] in MUTANTS[name].ops


def test_what_is_tried_follows_from_the_ops_alone():
    one, other = MUTANTS["add-saturates"], MUTANTS["add-ignores-alpha"]
    same = type(one)(one.name, one.group, one.wrong, other.ops, one.patch)
    assert [case.id for case in _first(trial_cases(same, 1, 0, 40), 40)] == [
        case.id for case in _first(trial_cases(other, 1, 0, 40), 40)
    ]


def _first(entries, count):
    return [entry for entry, _ in zip(entries, range(count), strict=False)]


def test_a_failure_without_the_mutant_is_a_false_alarm_and_no_detection(monkeypatch):
    """The compiler is wrong on its own: nothing that it fails is put down to the mutant."""
    wrong = f"{BACKEND_NAME}+sub-swapped"
    monkeypatch.setattr(trial_module, "BACKEND_NAME", wrong)
    monkeypatch.setattr(trial_module, "trial_cases", lambda mutant, *effort: iter([_case("sub", index=1)]))
    with SelfTrial() as trial:
        found = trial.try_mutant(MUTANTS["add-saturates"])
    assert not found.detected and found.alarms == ["opinfo:sub:float32:1"] and found.tried == 1


def test_the_command_journals_resumes_and_counts(tmp_path, capsys, monkeypatch):
    journal = tmp_path / "a" / "journal.jsonl"
    common = [
        "selftrial",
        "--out",
        str(journal),
        "--programs",
        "0",
        "--limit",
        "1",
        "--variants",
        "0",
        "--format",
        "json",
    ]
    assert invoke([*common, "--bug", "int-sub-swapped"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[-1] == {"class": "all", "mutants": 1, "detected": 1, "undetected": [], "false alarms": 0}
    missed = TrialResult("add-ignores-alpha", "ignored attribute", tried=3)
    selftrial.append_to_journal(journal, missed)

    def again(self, mutant):
        raise AssertionError(f"{mutant.name} was tried again")

    monkeypatch.setattr(SelfTrial, "try_mutant", again)
    assert invoke([*common, "--mutant", "int-sub-swapped", "--bug", "add-ignores-alpha"]) == 1
    rows = json.loads(capsys.readouterr().out)
    assert [row["undetected"] for row in rows] == [[], ["add-ignores-alpha"], []]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--bug", "sub-swaped"], 'unknown mutant "sub-swaped" (did you mean "sub-swapped"?)'),
        (["--class", "NaNs"], 'unknown class "NaNs" (did you mean "NaN"?)'),
        (["--bug", "zzz*"], 'no mutant matches "zzz*"'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert invoke(["selftrial", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_a_journal_that_is_none(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"bug": "sub-swapped"}\n')
    with pytest.raises(InputError, match=r"journal.jsonl:1: not a line of a self-trial"):
        selftrial.read_journal(path)


def test_the_listing(capsys):
    assert invoke(["selftrial", "--list", "--format", "json", "--class", "NaN"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["mutant"] for row in rows} == {name for name, mutant in MUTANTS.items() if mutant.group == "NaN"}


@pytest.mark.torture
def test_what_numbers_decide_is_asked_in_every_dtype_and_what_arguments_decide_of_all_samples():
    tried = [case for case in trial_cases(MUTANTS["sum-without-tail"], 6, 0, 1000) if case.variant != "default"]
    by_variant = {name: [case for case in tried if case.variant == name] for name in VARIANTS}
    assert {case.dtype for case in by_variant["extremes"]} >= {"float32", "int8", "uint8", "bfloat16"}
    assert {case.dtype for case in by_variant["square"]} == {"float32"} and len(by_variant["square"]) > 6
    assert {case.dtype for case in by_variant["strided"]} <= set(cases.OTHER_VARIANT_DTYPES)
    assert len({case.id for case in tried}) == len(tried)


@pytest.mark.torture
def test_several_are_tried_at_a_time():
    chosen = [MUTANTS["sub-swapped"], MUTANTS["neg-by-subtraction"]]
    found = {one.mutant: one for one in selftrial.run_trials(chosen, 2, limit=4, programs=0, most=0, timeout=20.0)}
    assert set(found) == {"sub-swapped", "neg-by-subtraction"}
    assert found["sub-swapped"].detected and found["sub-swapped"].by == "opinfo"


def test_the_tables_of_the_documentation():
    found = [
        TrialResult("a", "x", case="opinfo:add:float32:0:long", by="opinfo", tried=2),
        TrialResult("b", "x", case="fuzz:add+mul:float32:3:seed-0", by="fuzz", tried=3, alarms=["opinfo:mul:int8:0"]),
        TrialResult("c", "y", tried=4),
    ]
    text = selftrial.markdown_tables({one.mutant: one for one in found})
    assert "| x | 2 | 2 |  |" in text and "| y | 1 | 0 | `c` |" in text and "| all | 3 | 2 |  |" in text
    assert "| variant `long` | 1 |" in text and "| programs of the fuzzer | 1 |" in text
    assert "False alarms in 9 cases: 1." in text and "`opinfo:mul:int8:0`" in text
