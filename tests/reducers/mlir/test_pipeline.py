"""Pass pipelines as trees: what is read is what is written, and less of it."""

import pytest

from torchstone.conformance.errors import InputError
from torchstone.reducers.mlir import pipeline

NESTED = (
    "func.func(canonicalize{max-iterations=1 top-down=false},cse),one-shot-bufferize,gpu.module(llvm.func(cse),strip)"
)


@pytest.mark.parametrize("text", [NESTED, "cse", "", "a{b={c d} e=f},g"])
def test_what_is_read_is_what_is_written(text: str) -> None:
    assert pipeline.text(pipeline.parse(text)) == f"builtin.module({text})"
    assert pipeline.parse(f" builtin.module( {text} )".replace("( ", "(").replace(" )", ")")) == pipeline.parse(text)


def test_passes_are_counted_and_kept_in_the_order_they_run() -> None:
    found = pipeline.parse(NESTED)
    assert pipeline.passes(found) == 5
    assert (
        pipeline.text(pipeline.keep(found, frozenset({1, 3})))
        == "builtin.module(func.func(cse),gpu.module(llvm.func(cse)))"
    )
    assert pipeline.keep(found, frozenset()) == ()


def test_options_are_left_out_one_pass_at_a_time() -> None:
    shorter = pipeline.without_options(pipeline.parse("a{b=c},func.func(d{e=f})"))
    assert [pipeline.text(other) for other in shorter] == [
        "builtin.module(a,func.func(d{e=f}))",
        "builtin.module(a{b=c},func.func(d))",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("func.func(cse", "parenthesis is not closed"),
        ("cse)", "what is left"),
        ("a{b=c", "brace is not closed"),
        (",a", "a name should be"),
    ],
)
def test_what_is_no_pipeline_is_refused_with_its_place(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        pipeline.parse(text)


def test_leaves_stay_in_their_nests() -> None:
    found = list(pipeline.leaves(pipeline.parse("a,gpu.module(llvm.func(b{c=d},e))")))
    assert [str(leaf) for leaf in found] == ["a", "gpu.module(llvm.func(b{c=d}))", "gpu.module(llvm.func(e))"]
    assert [pipeline.pass_name(leaf) for leaf in found] == ["a", "b", "e"]
