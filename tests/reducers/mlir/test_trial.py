"""Trials: whatever a pass does to its process, this one hears how it ended."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from torchstone.reducers.mlir import trial
from torchstone.reducers.mlir.pipeline import parse

MODULE = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = arith.addf %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
"""


def killed(tell: Callable[..., None]) -> None:
    tell(kind="at", at="some-pass")
    os.write(2, b"Assertion `it holds' failed.\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def hanging(tell: Callable[..., None]) -> None:
    tell(kind="at", at="some-pass")
    time.sleep(60)


def greedy(tell: Callable[..., None]) -> None:
    bytearray(2 * trial.MEMORY)


@pytest.mark.parametrize(
    ("work", "timeout", "told"),
    [
        (killed, 20, "crash in some-pass: SIGSEGV: Assertion `it holds' failed."),
        (hanging, 0.3, "timeout in some-pass: over 0.3 s"),
        (greedy, 20, "crash: exit code 1"),
        (lambda tell: tell(kind="ok", module="m" * 200_000), 20, "ok"),  # more than a pipe holds
    ],
)
def test_a_trial_tells_how_it_ended(work: Callable[[Callable[..., None]], None], timeout: float, told: str) -> None:
    found = trial.in_child(work, timeout)
    assert str(found) == told
    assert len(found.module) == (200_000 if told == "ok" else 0)


@pytest.mark.parametrize(
    ("module", "passes", "told"),
    [
        (MODULE, "canonicalize,cse", "ok"),
        (MODULE, "func.func(one-shot-bufferize)", "invalid"),
        (MODULE, "one-shot-bufferize", "error in one-shot-bufferize: op was not bufferized"),
        (MODULE.replace("addf %x, %x", "addf %x"), "cse", "invalid in parse"),
    ],
)
def test_a_pipeline_ends_well_or_says_where_it_does_not(module: str, passes: str, told: str) -> None:
    found = trial.try_pipeline(module, parse(passes), 20)
    assert str(found).startswith(told)


def test_the_same_failure_elsewhere_has_the_same_signature() -> None:
    other = MODULE.replace("4x", "3x").replace("@main", "@other")
    a, b = (trial.try_pipeline(text, parse("one-shot-bufferize"), 20) for text in (MODULE, other))
    assert a.signature == b.signature != trial.try_pipeline(MODULE, parse("cse"), 20).signature


def test_an_op_that_a_message_prints_is_no_part_of_the_signature() -> None:
    """It shows the whole function, of which a reduction is to leave little."""
    told = "failed to legalize operation 'func.func' that was explicitly marked illegal: "
    long = trial.Outcome("error", "convert", f'{told}"func.func"() <{{function_type = (f32, f32) -> f32}}> ({{...}})')
    short = trial.Outcome("error", "convert", f'{told}"func.func"() <{{function_type = () -> ()}}> ({{...}})')
    other = trial.Outcome("error", "convert", f'{told.replace("func.func", "scf.for")}%0 = "scf.for"() : () -> f32')
    assert long.signature == short.signature
    assert long.signature != other.signature
