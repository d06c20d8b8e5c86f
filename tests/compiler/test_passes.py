"""Passes run in order, where they apply, under names, and tell how long they took; the compiler's own are in order."""

from __future__ import annotations

import pytest

from torchstone.compiler.driver import compile, pipelines
from torchstone.compiler.lowering.registry import TARGETS, find_target
from torchstone.compiler.passes import Pass, Pipeline, Times, timed, timing
from torchstone.compiler.runtime.cpu.cache import VARIABLE

COUNT = Pipeline(
    "count",
    (
        Pass("double", "twice as many", lambda number, context: 2 * number),
        Pass("halve", "half as many", lambda number, context: number // 2, lambda context: context == "halve"),
        Pass("add", "one more", lambda number, context: number + 1, mlir="add-one"),
    ),
)


def test_the_passes_that_apply_run_in_order() -> None:
    assert COUNT.run(5) == 11
    assert COUNT.run(5, "halve") == 6


def test_a_pipeline_prints_its_passes() -> None:
    assert str(COUNT).splitlines() == [
        "count:",
        "  double                       twice as many",
        "  halve                        half as many [conditional]",
        "  add                          one more",
        "                               mlir: add-one",
    ]


def test_a_pass_can_be_replaced_by_name() -> None:
    assert COUNT.with_run("double", lambda number, context: 3 * number).run(5) == 16
    assert COUNT.run(5) == 11
    with pytest.raises(ValueError, match="the pipeline count has no pass treble"):
        COUNT.with_run("treble", lambda number, context: number)


def test_passes_are_counted_and_timed_in_the_block_alone() -> None:
    COUNT.run(1)
    with timing() as times:
        COUNT.run(1)
        COUNT.run(1, "halve")
        with pytest.raises(ZeroDivisionError), timed("more", "fails"):
            _ = 1 // 0
    COUNT.run(1)
    assert times.runs == {("count", "double"): 2, ("count", "add"): 2, ("count", "halve"): 1, ("more", "fails"): 1}
    assert all(seconds >= 0 for seconds in times.seconds.values())


def test_times_are_a_table_with_a_total() -> None:
    times = Times()
    for step, seconds in (("double", 0.003), ("add", 0.0005), ("double", 0.0005)):
        times.add("count", step, seconds)
    assert [line.split() for line in str(times).splitlines()] == [
        ["pipeline", "pass", "runs", "ms", "share"],
        ["count", "double", "2", "3.50", "87.5%"],
        ["count", "add", "1", "0.50", "12.5%"],
        ["total", "4.00"],
    ]


@pytest.mark.parametrize("target", TARGETS)
def test_a_compilation_runs_the_pipelines_of_its_target(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed is what is printed, in its order, but for the passes that did not apply."""
    if target == "stablehlo-xla":
        pytest.importorskip("jax")
    monkeypatch.setenv(VARIABLE, "0")  # code from the cache takes no passes
    listed = [(p.name, step.name) for p in pipelines(find_target(target)) for step in p.passes]
    with timing() as times:
        compile(lambda x: x + 1, (3.5,), target)
    ran = [key for key in times.runs if key[0] not in ("capture", "lower", "machine-code")]
    assert ran == [key for key in dict.fromkeys(listed) if key in times.runs]
    assert {p.name for p in pipelines(find_target(target))} == {name for name, _ in ran}
