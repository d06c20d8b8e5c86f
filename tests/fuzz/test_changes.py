"""What programs are drawn for, when functions of the backend have changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

import pytest
import torch

from torchstone.conformance.program.case import Case
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.fuzz import campaign
from torchstone.fuzz.campaign import CampaignOptions, Tally, run_campaign
from torchstone.fuzz.changes import COMMON, Changes
from torchstone.fuzz.corpus import FUNCTIONS, Corpus
from torchstone.fuzz.generator import variants
from torchstone.fuzz.generator.catalog import select_rules
from torchstone.fuzz.generator.choices import SeededChoices
from torchstone.fuzz.generator.rules import OpRule


def case(*ops: str, dtype: torch.dtype = torch.float32, variant: str = "default", index: int = 0) -> Case:
    calls = tuple(Call(f"torch.{op}", (Ref("x"),), {}, f"v{k}") for k, op in enumerate(ops))
    program = Program(("x",), calls, Ref("v0"))
    inputs = {"x": torch.ones(2, dtype=dtype)}
    return Case(program, inputs, "fuzz", ops[0], "float32", variant=variant, index=index)


def asked(changes: Changes, one: Case, *changed: str) -> None:
    changes.watch(one, changed)
    changes.count(one)


def drawn(changes: Changes, many: int = 400, **told: object) -> Counter[str]:
    found: Counter[str] = Counter()
    for index in range(many):
        focus = changes.focus(SeededChoices(str(index)), **told)  # type: ignore[arg-type]
        found[focus.rules[0].op if focus else ""] += 1
    return found


def test_most_programs_are_for_ops_that_come_to_what_has_changed():
    changes = Changes()
    changes.known = {name: ["1"] for name in ("f", "all", "rare", "once")}
    assert changes.focus(SeededChoices("0")) is None, "nothing has"
    for index in range(30):
        asked(changes, case("cos", "tan", index=index))
    asked(changes, case("sin", "cos", dtype=torch.float64, variant="dynamic"), "f")
    assert changes.changed == ["f"]
    found = drawn(changes)
    assert 250 < found["sin"] < 350 and found["cos"] < 20, "of ops that come to it by themselves"
    focus = [focus for n in range(100) if (focus := changes.focus(SeededChoices(str(n))))]
    assert {one.dtype for one in focus} == {torch.float64} and {one.variant for one in focus} == {None, "dynamic"}
    assert drawn(changes, pool=select_rules(["tan"])) == {"": 400}, "nothing of what may be drawn does"


def test_each_function_has_its_turn_and_one_that_all_programs_call_has_none():
    changes = Changes()
    changes.known = {name: ["1"] for name in ("f", "all", "rare", "once")}
    for index in range(10 * COMMON):
        asked(changes, case("cos", index=index), "all")
    for index in range(8):
        asked(changes, case("sin", index=index), "all", "rare")
    asked(changes, case("tan"), "all", "once")
    assert changes.changed == ["rare", "once"]
    found = drawn(changes)
    assert found["sin"] > 50 and found["tan"] > 50 and found["cos"] == 0


def test_programs_that_were_drawn_for_it_do_not_make_it_common():
    changes = Changes()
    changes.known = {name: ["1"] for name in ("f", "all", "rare", "once")}
    for index in range(20):
        asked(changes, case("cos", index=index))
    asked(changes, case("sin", index=20), "f")
    for index in range(21, 100):
        changes.draw(case("sin", index=index))
        asked(changes, case("sin", index=index), "f")
    assert changes.changed == ["f"]


def test_what_was_changed_has_as_many_as_all_that_is_new():
    changes = Changes()
    changes.known = {"f": ["1"]}
    for index in range(40):
        asked(changes, case("cos", index=index))
    asked(changes, case("sin"), "f")
    asked(changes, case("tan"), *(f"new {k}" for k in range(50)))
    assert changes.changed == ["f"] and len(changes.new) == 50
    found = drawn(changes)
    assert 100 < found["sin"] < 200 and 100 < found["tan"] < 200


@pytest.mark.torture
@pytest.mark.usefixtures("fork_server")
def test_a_campaign_draws_for_what_is_not_as_the_corpus_knew_it(tmp_path, monkeypatch):
    folder = tmp_path / "corpus"
    kept = Corpus(folder)
    for index, op in enumerate(("sin", "cos", "tan", "exp", "erfinv", "cumsum")):
        args = (Ref("x"), 0) if op == "cumsum" else (Ref("x"),)
        program = Program(("x",), (Call(f"torch.{op}", args, {}, "v"),), Ref("v"))
        kept.keep(Case(program, {"x": torch.ones(2)}, "fuzz", op, "float32", index=index))
    options = {"jobs": 1, "corpus": folder}
    monkeypatch.setattr(campaign._Campaign, "_numbers", lambda self: iter(()))
    first = run_campaign(CampaignOptions("linalg", 120.0, 5, tmp_path / "first", **options))
    assert first.guidance.changes.changed == [], "nothing is known yet"

    noted = json.loads((folder / FUNCTIONS).read_text())
    (name,) = [name for name in noted["functions"] if name.endswith(":_erfinv")]
    noted["functions"][name] = ["another"]
    (folder / FUNCTIONS).write_text(json.dumps(noted))
    monkeypatch.undo()

    def stop(tally: Tally) -> None:
        if tally.tried >= 36:
            raise KeyboardInterrupt

    wanted: list[str] = []

    def nth_case(seed: int, index: int, pool: object, max_ops: int, must: Sequence[OpRule], *rest: object) -> Case:
        wanted.extend(rule.op for rule in must)
        return variants.nth_case(seed, index, pool, max_ops, must, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(campaign, "nth_case", nth_case)
    second = run_campaign(CampaignOptions("linalg", 120.0, 5, tmp_path / "second", **options), stop)
    assert second.guidance.changes.changed == [name]
    assert wanted.count("erfinv") > 1
    assert Corpus(folder).functions()[name] == ["another"], "until a campaign has run to its end"
