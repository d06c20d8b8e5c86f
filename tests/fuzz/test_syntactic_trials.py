"""Syntactic mutants end to end: which cases run a line, what they are tried on, the journal, the rate."""

from __future__ import annotations

import json

import pytest
import torch

from torchstone.cli import invoke
from torchstone.conformance.errors import InputError
from torchstone.conformance.execution.verdict import Outcome, Stage, Verdict
from torchstone.conformance.mutants.syntactic import population
from torchstone.conformance.mutants.syntactic.enumerate import mutations
from torchstone.conformance.mutants.syntactic.judgements import Judged, Judgement
from torchstone.conformance.program.case import Case
from torchstone.conformance.program.literals import leaves
from torchstone.conformance.program.program import Call, Program, Ref
from torchstone.conformance.sources import programs
from torchstone.conformance.variants.attempts import attempts
from torchstone.fuzz.generator import generate
from torchstone.fuzz.selftrial import cases, syntactic
from torchstone.fuzz.selftrial import line_map as trace
from torchstone.fuzz.selftrial import mutation_results as results
from torchstone.fuzz.selftrial.line_map import LineMap, line_map, trace_op, traced_program
from torchstone.fuzz.selftrial.mutation_results import MutationResult
from torchstone.fuzz.selftrial.reaching_cases import Effort, reaching_cases, reaching_ids


def mutation_of(path, before, after):
    source = (population.ROOT / path).read_text()
    (found,) = (one for one in mutations(path, source) if one.diff(source) == (before, after))
    return found


CEIL = mutation_of(
    "transforms/expansions/core/elementwise.py",
    "return pointwise(b, lambda v: getattr(b, name)(v), x) if x.dtype.is_float else x",
    "return (x if x.dtype.is_float else pointwise(b, lambda v: getattr(b, name)(v), x))",
)
SAME = mutation_of(
    "transforms/expansions/core/comparison.py",
    "common = result_type(x, y)",
    "common = result_type(y, x)",
)
EFFORT = Effort(ops=1, reaching=2, limit=1, dtypes=1, varied_ops=1, variants=2, programs=0)


def map_of(*ops):
    found = LineMap()
    for op in ops:
        for case, ran in trace_op("linalg", op):
            found.add(case, ran)
    return found


@pytest.fixture(autouse=True)
def _few_sources(monkeypatch):
    """Two files to draw from: all of them take seconds to read."""
    every = population.sources()
    monkeypatch.setattr(
        population, "sources", lambda target="linalg": {path: every[path] for path in (CEIL.path, SAME.path)}
    )


@pytest.fixture(scope="module")
def lines():
    return map_of("ceil", "logical_and")


# The map


def test_the_map_says_which_cases_run_a_line(lines):
    by_op = {name.split(":")[1] for name in lines.covering(CEIL.path, CEIL.line, CEIL.last)}
    assert by_op == {"ceil"}
    assert {name.split(":")[1] for name in lines.covering(SAME.path, SAME.line, SAME.last)} == {"logical_and"}
    assert {name.split(":")[1] for name in lines.covering("lowering/linalg/__init__.py")} == {"ceil", "logical_and"}
    assert not lines.covering("lowering/tosa/table.py") and not any(path.startswith("capture") for path in lines.lines)


def test_the_cases_that_run_the_fewest_other_lines_come_first():
    made = LineMap()
    made.add("a", {"m.py": {1, 2, 3}})
    made.add("b", {"m.py": {2}})
    made.add("c", {"m.py": {2, 3}, "n.py": {7}})
    assert made.covering("m.py", 2, 3) == ["b", "a", "c"]
    assert made.covering("m.py", 4, 9) == [] and made.covering("n.py") == ["c"]
    assert LineMap.from_json(json.loads(json.dumps(made.to_json()))) == made


def test_a_map_is_made_once(tmp_path, monkeypatch, lines):
    monkeypatch.setattr("torchstone.fuzz.selftrial.line_map._traced", lambda *_: iter([("a", {"m.py": {1}})]))
    made = line_map("linalg", tmp_path)
    monkeypatch.setattr("torchstone.fuzz.selftrial.line_map._traced", None)
    assert line_map("linalg", tmp_path) == made and made.cases == ["a"]
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"nothing that was compressed")
    with pytest.raises(TypeError):  # it is made again
        line_map("linalg", tmp_path)


def test_what_ends_the_process_or_has_no_end_is_not_in_the_map(monkeypatch):
    """Eager itself ends at `lcm` of the least and the greatest int64: they have -1 in common, it says."""
    bounds = torch.iinfo(torch.int64)

    def lcm(index, other):
        program = Program(("x", "y"), (Call("torch.lcm", (Ref("x"), Ref("y")), {}, "z"),), Ref("z"))
        inputs = {"x": torch.tensor([bounds.min]), "y": torch.tensor([other])}
        return Case(program, inputs, "opinfo", "lcm", "int64", index=index)

    def compile_and_call(case, compiler):
        while case.index == 2:
            pass
        case.program(*case.fresh_args())

    def made(case):
        """A case that cannot be made: that ends the process, too."""
        if case.id not in attempts.fatal:
            attempts.begin(case.id)
            case.program(*case.fresh_args())
        yield from ()

    def cases():
        yield lcm(0, 1)
        yield from made(lcm(4, bounds.max))
        yield from (lcm(1, bounds.max), lcm(2, 1), lcm(3, 1))

    monkeypatch.setattr(trace, "_compile_and_call", compile_and_call)
    monkeypatch.setattr(trace, "SECONDS", 1)
    assert [case for case, _ in trace._trace_in_forks("linalg", cases)] == [lcm(0, 1).id, lcm(3, 1).id]


def test_each_cast_is_in_a_traced_program():
    """A dtype that only a cast names is run by no sample of the database."""
    found = [list(traced_program(pair)) for pair in programs.op_names() if pair.startswith("cast+")]
    assert all(found)
    named = {
        leaf
        for cases in found
        for case in cases
        for call in case.program.calls
        for leaf in leaves((call.args, call.kwargs))
        if isinstance(leaf, torch.dtype)
    }
    assert {torch.float8_e5m2, torch.float8_e4m3fn, torch.uint16, torch.complex64, torch.int8} <= named


# What is tried


def test_where_no_case_runs_a_line_the_rest_of_its_function_and_of_its_file_say_what_is_near():
    made = LineMap()
    made.add("in the function", {CEIL.path: {CEIL.line + 2}})
    made.add("in the file", {CEIL.path: {CEIL.line + 50}})
    inner, outer = (CEIL.line, CEIL.line), (CEIL.line - 3, CEIL.line + 3)
    assert reaching_ids(made, CEIL, [inner, outer]) == ([], ["in the function"])
    assert reaching_ids(made, CEIL, [inner]) == ([], ["in the function", "in the file"])
    assert reaching_ids(made, SAME, [(1, 1000)]) == ([], [])


def test_the_functions_around_a_line_come_before_those_that_call_them():
    text = (
        "def a():\n    def b():\n        return 1\n    return b\n"
        "def c():\n    return a()\n"
        "def d():\n    return c\n"
        "def e():\n    return 2\n"
    )
    first = mutations("m.py", text)[0]
    assert first.line == 3 and syntactic.functions_around(text, first) == [(2, 3), (1, 4), (5, 6), (7, 8)]


def test_ops_that_a_function_is_registered_for_are_near_to_it():
    """Whether a traced sample runs the line or not: a root is taken of what few samples of pow have as exponent."""
    path = "transforms/expansions/core/power.py"
    text = (population.ROOT / path).read_text()
    inner = next(one for one in mutations(path, text) if one.function == "float_power")
    assert syntactic.ops_named(text, inner)[0] == "pow"
    assert not syntactic.ops_named("def a():\n    return 1\n", mutations("m.py", "def a():\n    return 1\n")[0])


@pytest.mark.torture
def test_what_is_tried_is_the_same_each_time_and_nothing_is_tried_twice(lines):
    reaching, _ = reaching_ids(lines, SAME, [])
    first, second = (
        [
            case.id
            for case in reaching_cases(
                reaching, ["logical_and"], Effort(reaching=3, limit=2, dtypes=2, variants=9, programs=2)
            )
        ]
        for _ in range(2)
    )
    assert first == second and len(set(first)) == len(first)
    assert set(first[:3]) <= set(reaching) and len({name.split(":")[2] for name in first[:3]}) == 3
    assert {name.split(":")[0] for name in first} == {"opinfo", "errors", "fuzz"}


def test_what_many_ops_run_is_asked_of_unlike_ones():
    """The first op in every variant, and others in each."""
    ops = ["neg", *(f"special.bessel_{name}" for name in ("j0", "j1", "y0", "y1")), "add", "mul", "sub"]
    effort = Effort(limit=1, dtypes=1, varied_ops=2, variants=8, programs=0)
    varied = [case for case in reaching_cases([], ops, effort) if case.variant != "default" and case.source == "opinfo"]
    asked = {op: [case.variant for case in varied if case.op == op] for op in ops}
    assert max(asked, key=lambda op: len(asked[op])) == "neg" and sum(map(bool, asked.values())) > 3


def test_a_line_that_cases_run_in_a_variant_is_tried_in_that_variant():
    """However many cases run it as they are, which come first."""
    varied = [f"opinfo:ceil:{dtype}:0:{name}" for name in ("empty", "strided") for dtype in ("float32", "float64")]
    plain = [case.id for case in reaching_cases(["opinfo:ceil:float32:0"], [], EFFORT)]
    with_variants = [case.id for case in reaching_cases(["opinfo:ceil:float32:0", *varied], [], EFFORT)]
    assert not any(name.count(":") > 3 for name in plain) and set(varied) <= set(with_variants)


def test_programs_and_modules_are_varied_where_few_ops_come_by():
    module = "modules:nn.Tanh:float32:0"
    effort = Effort(limit=1, dtypes=1, varied_ops=2, variants=8, programs=0)
    varied = [case for case in reaching_cases([], [], effort, near=[module]) if case.variant != "default"]
    assert varied and {case.op for case in varied} == {"nn.Tanh"}


# Trials


@pytest.mark.torture
def test_the_first_case_that_runs_it_kills_a_mutant_and_none_kills_one_that_computes_the_same(lines):
    """One trial for both: to warm it up takes longer than to try a mutant."""
    with syntactic.SyntacticTrial(lines, effort=EFFORT) as trial:
        killed, same = (trial.try_mutation(one) for one in (CEIL, SAME))
    assert killed.killed and killed.case.startswith("opinfo:ceil:") and killed.outcome in ("mismatch", "error")
    assert (killed.tried, killed.reached) == (1, 1) and killed.fingerprint == CEIL.fingerprint
    assert not same.killed and same.reached >= 2 and same.ops == ["logical_and"]
    assert (same.before, same.after) == ("common = result_type(x, y)", "common = result_type(y, x)")
    assert trace_op("linalg", "ceil"), "which would raise if a mutation's mark were left in the code"


@pytest.mark.torture
def test_a_case_that_has_no_end_without_a_mutation_either_says_nothing_of_one(lines, monkeypatch):
    """It would have none in this process: what the compiler makes of it is asked in a fork, too."""

    def endless(case, backend, compiled=None):
        while True:
            pass

    monkeypatch.setattr("torchstone.fuzz.selftrial.forked.run_case", endless)
    (case, *_) = reaching_cases(reaching_ids(lines, CEIL, [])[0], ["ceil"], EFFORT)
    with syntactic.SyntacticTrial(lines, effort=EFFORT, timeout=0.5) as trial:
        assert trial._before(case) not in (Outcome.PASS, Outcome.ILL_CONDITIONED)
        found = trial.try_mutation(CEIL)
    assert not found.killed


@pytest.mark.parametrize(
    ("before", "after", "worse"),
    [
        ("pass", "mismatch", True),
        ("pass", "unsupported", True),
        ("pass", "fallback", True),
        ("pass", "ill-conditioned", False),
        ("pass", "harness-error", False),
        ("fallback", "error", True),
        ("fallback", "unsupported", False),
        ("mismatch", "crash", False),
        ("untested", "mismatch", False),
        ("unsupported", "unsupported", False),
        ("unsupported", "mismatch", True),
        ("ill-conditioned", "mismatch", True),
    ],
)
def test_what_finds_a_mutant(before, after, worse):
    verdict = Verdict("a", "linalg", "opinfo", "a", "float32", "default", Stage.RUN, Outcome(after))
    assert syntactic._is_worse(Outcome(before), verdict) is worse


# The command


@pytest.mark.torture
def test_the_command_journals_resumes_and_shows_survivors(tmp_path, capsys, monkeypatch, lines):
    monkeypatch.setattr(syntactic, "line_map", lambda *_: lines)
    monkeypatch.setattr("torchstone.fuzz.selftrial.line_map.line_map", lambda *_: lines)
    journal = tmp_path / "a" / "journal.jsonl"
    options = ["--limit", "1", "--variants", "2", "--programs", "0", "--jobs", "1", "--out", str(journal)]
    chosen = ["selftrial", "--mutants", "1", "--mutant", SAME.fingerprint]
    assert invoke([*chosen, *options]) == 1
    shown = capsys.readouterr()
    assert f"1/1  {SAME.fingerprint} {SAME.path}:{SAME.line} operands: SURVIVED" in shown.err
    assert "  - common = result_type(x, y)\n  + common = result_type(y, x)\n" in shown.out
    killed = MutationResult(CEIL.fingerprint, CEIL.path, 1, "f", "branch", "a", "b", case="c", outcome="mismatch")
    results.append_to_mutation_journal(journal, killed)
    monkeypatch.setattr(syntactic.SyntacticTrial, "try_mutation", None)  # nothing is tried again
    assert invoke([*chosen, "--mutant", CEIL.fingerprint, *options, "--format", "json"]) == 1
    rows = {row["mutant"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows[CEIL.fingerprint]["state"] == "mismatch" and rows[SAME.fingerprint]["case"] == ""


def test_the_listing_is_the_draw_of_a_seed(capsys):
    listings = []
    for count in ("3", "2"):
        assert invoke(["selftrial", "--mutants", count, "--seed", "7", "--list", "--format", "json"]) == 0
        listings.append(json.loads(capsys.readouterr().out))
    assert listings[0][:2] == listings[1] and len(listings[0]) == 3
    assert set(listings[0][0]) == {"mutant", "where", "operator", "before", "after"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mutants", "1", "--mutant", "123"], 'unknown mutant "123"'),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, message, capsys):
    assert invoke(["selftrial", *arguments]) == 2
    assert message in capsys.readouterr().err


# What is reported


def result(name, **fields):
    return MutationResult(name, "m.py", 3, "f", "constant", "x + 1", "x + 2", **fields)


FOUND = [
    result("a", case="opinfo:add:float32:0", by="opinfo", outcome="mismatch"),
    result("b", case="opinfo:add:float32:0:long", by="opinfo", outcome="error"),
    result("c", tried=9, reached=4, ops=["add"]),
    result("d", tried=9),
    result("e", tried=9, reached=1),
]
JUDGED = {
    "c": Judged("m.py", Judgement.EQUIVALENT, "both are 2"),
    "b": Judged("m.py", Judgement.EQUIVALENT, "wrongly so: it was killed"),
    "e": Judged("m.py", Judgement.HOLE, "nobody asks"),
}


def test_the_rate_is_of_the_mutants_that_are_not_equivalent():
    rows = {row["operator"]: row for row in results.rate_rows(FOUND, JUDGED)}
    assert rows["all"] == {"operator": "all", "mutants": 5, "equivalent": 1, "killed": 2, "rate": "50.0"}
    assert [results.state_of(one, JUDGED) for one in FOUND] == ["mismatch", "error", "equivalent", "unreached", "hole"]
    assert results.rate_rows([FOUND[2]], JUDGED)[-1]["rate"] == ""


def test_survivors_are_shown_with_their_change_and_what_was_tried():
    text = results.survivors_text(row for row in results.mutant_rows(FOUND, JUDGED) if row["state"] == "equivalent")
    assert text == ("c  compiler/m.py:3  equivalent: both are 2\n  - x + 1\n  + x + 2\n  9 cases tried, 4 ran it: add")
    assert results.killers(FOUND) == [
        {"outcome": "mismatch", "by": "opinfo", "mutants": 1},
        {"outcome": "error", "by": "long", "mutants": 1},
    ]


def test_a_journal_that_is_none(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"fingerprint": "a"}\n')
    with pytest.raises(InputError, match=r"journal.jsonl:1: not a line of a trial of mutants"):
        results.read_mutation_journal(path)


def test_an_op_that_no_program_can_call_is_passed_over(monkeypatch):
    """Some take what few programs have, and are not drawn in so many attempts."""
    drawn = []

    def nth_program(seed, index, *rest):
        drawn.append(index)
        if index == 1:
            raise generate.NothingGenerated("no valid call of bincount could be drawn")
        return index

    monkeypatch.setattr(generate, "nth_program", nth_program)
    assert list(cases.programs_of(["bincount"], 3)) == [0, 2] and drawn == [0, 1, 2]
