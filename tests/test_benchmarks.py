"""The benchmarks name what is in the code: each stage is a function, each program runs."""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from .rules import ROOT

NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def on_the_path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))
    for name in NAMES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_imports(name: str) -> None:
    assert callable(importlib.import_module(name).main)


def test_every_stage_is_a_function() -> None:
    stages: Any = importlib.import_module("stages")
    for _, module, path in stages.STAGES:
        owner, name = stages.find(module, path)
        assert callable(getattr(owner, name)), f"{module}.{path}"


def test_the_rows_of_the_stages_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case goes through the stages that a compiler has, and no stage is timed twice."""
    from torchstone.conformance.program.case import Case
    from torchstone.conformance.program.program import Call, Program, Ref

    stages: Any = importlib.import_module("stages")
    for _, module, path in stages.STAGES:  # what the clock puts in their places is taken out again
        owner, name = stages.find(module, path)
        monkeypatch.setattr(owner, name, getattr(owner, name))
    program = Program(("x",), (Call("torch.exp", (Ref("x"),), {}, "y"),), Ref("y"))
    rows = stages.measure([Case(program, {"x": torch.rand(3)}, "test", "exp", "float32")], "linalg", 1)
    assert {"capture", "contract", "lower", "compile: LLVM", "compile: pipeline buffers", "call", "oracle"} <= set(rows)
    assert all(taken >= 0 for taken in rows.values())


def test_the_named_kernels_run() -> None:
    kernels: Any = importlib.import_module("kernels")
    fn, args = kernels.kernels()["layer norm 1024x768"]
    assert fn(*args).shape == args[0].shape


def test_the_programs_of_the_leak_check_are_in_torch() -> None:
    leak: Any = importlib.import_module("leak")
    for unary in leak.UNARY:
        for binary in leak.BINARY:
            assert leak.program(unary, binary)(torch.rand(3, 2), torch.rand(2)).shape == (3,)


def test_one_compilation_serves_every_shape() -> None:
    dynamic: Any = importlib.import_module("dynamic")
    assert len(set(dynamic.shapes(50))) == 50
    row = dynamic.measure(dynamic.PROGRAMS["gelu and layer norm"], 50, 60)
    assert row["shapes"] == 50 and row["compiled"] == 1 and row["compiled again"] == 0


def test_the_ops_of_a_planted_bug_are_those_that_call_what_it_changes() -> None:
    from torchstone.conformance.planted import BUGS

    planted: Any = importlib.import_module("planted_bugs")
    calls = {
        "linalg.svd": {"forward": ["_linalg_svd", "tanh"], "backward": []},
        "nn.functional.tanh": {"forward": ["tanh", "clone"], "backward": ["tanh_backward"]},
        "mish": {"forward": ["mish"], "backward": ["tanh"]},
        "exp": {"forward": ["exp"], "backward": ["exp"]},
    }
    assert planted.ops_of(BUGS["tanh-saturates-early"], calls, 9) == ["nn.functional.tanh", "linalg.svd", "mish"]
    assert len(planted.ops_of(BUGS["weights-frozen"], calls, 3)) == 3  # in no op: drawn by its name


def test_a_planted_bug_counts_as_found_from_the_first_stage_that_finds_it() -> None:
    from torchstone.conformance.planted import BUGS

    planted: Any = importlib.import_module("planted_bugs")
    rows = {
        "exp2-by-exp": {"float32": {"found": "", "complete": True}, "all": {"found": "a:case", "complete": True}},
        "tanh-saturates-early": {"float32": {"found": "a:case", "complete": True}},
    }
    counts = planted.summary(
        [BUGS[name] for name in ("exp2-by-exp", "tanh-saturates-early", "relu-of-nan-in-vectors")], rows
    )
    found = {name: counts[name] for name in ("bugs", "float32", "default", "all")}
    assert found == {"bugs": 3, "float32": 1, "default": 1, "all": 2}
    assert counts["not asked to the end"] == 2


@pytest.mark.torture
def test_each_rule_of_the_oracle_is_where_the_ablation_looks_for_it(tmp_path: Path) -> None:
    """And a rule that gives room is missed where it is off: without the rounding model an answer is no longer right."""
    rules: Any = importlib.import_module("oracle_rules")
    assert all(callable(getattr(rule.get(), "func", rule.get())) for rule in rules.RULES)
    out = tmp_path / "rules.jsonl"
    with out.open("w") as file:
        ablation = rules.Ablation("ill-conditioned", file)
        rules.generated("ill-conditioned", 11, 12, ablation)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert ablation.judged > 3
    changed = {row["rule"] for row in rows if row["before"] != row["after"]}
    assert "room for rounding" in changed


def test_the_size_of_a_program_is_its_operators() -> None:
    size: Any = importlib.import_module("program_size")
    text = """%s = tosa.const_shape {values = dense<[4]> : tensor<1xindex>} : () -> !tosa.shape<1>
    %z = "tosa.const"() <{values = dense<0.0> : tensor<1xf32>}> : () -> tensor<1xf32>
    %0 = tosa.reshape %x, %s : (tensor<2x2xf32>, !tosa.shape<1>) -> tensor<4xf32>
    %1 = "tosa.add"(%0, %0) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %2 = tosa.add %1, %z : (tensor<4xf32>, tensor<1xf32>) -> tensor<4xf32>"""
    assert size.operators(text) == {"reshape": 1, "add": 2}
    one, four = {"add": 1}, {"add": 3, "mul": 1}
    rows = {"a": (one, four), "b": (four, four), "declined": (one, None), "none": ({}, {})}
    backends = ("tosa", "torch-mlir-tosa")
    counters = {
        name: dict(zip(backends, (None if n is None else Counter(n) for n in pair), strict=True))
        for name, pair in rows.items()
    }
    assert size.ratio(counters) == pytest.approx(0.5)
    assert size.ratio({"alone": {"tosa": Counter(one)}}) is None


def test_layers_are_counted_by_type() -> None:
    size: Any = importlib.import_module("program_size")
    text = """network(%x: FLOAT[2]) {
  %t0: FLOAT[1] = CONSTANT()  // flat.add 1.0
  %t1: FLOAT[2] = ELEMENTWISE(%x, %t0)  // flat.add SUM
  %t2: FLOAT[1], %t3: INT32[1] = TOPK(%t1)  // a = b(
}"""
    assert size.layers(text) == {"ELEMENTWISE": 1, "TOPK": 1}


def test_a_composite_is_one_operator_and_one_layer() -> None:
    """What the table is for: no composite that a target has whole is taken apart on the way."""
    size: Any = importlib.import_module("program_size")
    programs = size.programs()
    found = {name: size.ours(*programs[name]) for name in ("conv2d", "relu6", "bmm")}
    assert found == {"conv2d": {"transpose": 3, "conv2d": 1}, "relu6": {"clamp": 1}, "bmm": {"matmul": 1}}
    found = {
        name: size.in_tensorrt(*programs[name]) for name in ("conv2d", "depthwise conv2d", "avg_pool2d", "sigmoid")
    }
    assert found == {
        "conv2d": {"CONVOLUTION": 1}, "depthwise conv2d": {"CONVOLUTION": 1}, "avg_pool2d": {"POOLING": 1},
        "sigmoid": {"ACTIVATION": 1},
    }  # fmt: skip


def test_a_model_is_judged_by_float64_and_by_what_eager_is_off() -> None:
    judge: Any = importlib.import_module("models").judge
    exact = {"y": torch.linspace(1, 2, 5, dtype=torch.float64), "at": torch.arange(3)}
    eager = {"y": exact["y"].float(), "at": exact["at"]}
    assert judge(eager, eager, exact) == ""
    assert judge({**eager, "y": eager["y"] + 1e-6}, eager, exact) == ""
    assert "from float64" in judge({**eager, "y": eager["y"] + 1e-4}, eager, exact)
    assert "has other elements" in judge({**eager, "at": exact["at"] + 1}, eager, exact)
    assert "float64[5], eager's torch.float32[5]" in judge({**eager, "y": exact["y"]}, eager, exact)
    assert "nested" in judge({"y": eager["y"]}, eager, exact)
    broken = {**eager, "y": torch.where(eager["y"] > 1.5, torch.nan, eager["y"])}
    assert "NaN" in judge(broken, eager, exact) and judge(broken, broken, exact) == ""


def test_a_model_that_is_refused_is_a_row_with_the_reason() -> None:
    models: Any = importlib.import_module("models")
    rows = [models.Row("a", "tosa", "refused", "no such op"), models.Row("a", "linalg", "right", "", 3, 1.0, 0.5, 0)]
    text = "\n".join(models.table(rows, ["linalg", "tosa"]))
    assert "| a | 3, 1.0 s, 0.5 | refused |" in text and "- a on tosa is refused: `no such op`" in text


def test_the_stage_of_a_mutant_follows_from_its_file() -> None:
    from torchstone.conformance.mutants.syntactic import population

    blame: Any = importlib.import_module("blame")
    assert all(blame.stages_of(path) for target in population.TARGETS for path in population.sources(target))
    assert blame.stages_of("transforms/expansions/nn/pooling.py") == ("expansions",)
    assert blame.stages_of("transforms/decompose.py") == ("decompositions",)
    assert blame.stages_of("lowering/mlir_passes/outline.py") == blame.COMMON
    row = {"path": "transforms/cse.py", "line": 3, "case": "a:case", "fingerprint": "0", "stage": "expansions"}
    rows = [row | {"right": True, "parts": []}, row | {"right": False, "stage": "code", "parts": ["flat.add"]}]
    told = blame.summary([*rows, row | {"case": ""}])
    assert "1 of 2" in told and told.splitlines()[-1].endswith("named code: flat.add")


def test_a_corpus_that_was_asked_on_another_compiler_is_told(tmp_path: Path) -> None:
    """A campaign would look at all that has changed, and hardly at the function that is mutated."""
    from torchstone.conformance.backends import load
    from torchstone.conformance.execution.line_tracer import functions_of_files
    from torchstone.fuzz.corpus import Corpus

    alone: Any = importlib.import_module("fuzzer_alone")
    functions = functions_of_files(str(load("linalg").sources))
    assert alone.changed_since(tmp_path) == set(functions)  # nothing was asked at all
    other, new = sorted(functions)[:2]
    corpus = Corpus(tmp_path)
    corpus.note({name: codes for name, codes in functions.items() if name != new} | {other: ["another code"]})
    assert alone.changed_since(tmp_path) == {other, new}
    corpus.note(functions)
    assert not alone.changed_since(tmp_path)


@pytest.mark.torture
def test_bisect_names_the_file_that_a_drawn_mutant_is_in() -> None:
    """A short sweep: those that a sweep of hundreds finds wrong are for the benchmark to show."""
    import itertools

    from torchstone.conformance.mutants.syntactic import population
    from torchstone.fuzz.selftrial.syntactic import SyntacticTrial

    blame: Any = importlib.import_module("blame")
    with SyntacticTrial(blame.some_lines("linalg", 12), "linalg", blame.EFFORT) as trial:
        drawn = trial.applicable(population.draw(trial.texts, 7))
        asked = list(itertools.islice((row for row in blame.measured(trial, drawn) if row["case"]), 5))
    assert sum(row["right"] for row in asked) >= 4, blame.summary(asked)
