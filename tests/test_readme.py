"""The README's demonstration: its commands are run, and print what it says that they print.

What may differ, and is made equal before texts are compared: seconds, and the digits that the processor's vector
instructions decide. The verdict, the place, the right digits and all words are compared.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from .guides import fences
from .rules import ROOT
from .warm_python import WarmPython

README = ROOT / "README.md"
DEMONSTRATIONS = {
    line.removeprefix("$ "): said for line, _, said in (block.partition("\n") for block in fences(README, "console"))
}
REPLAY, REDUCE = DEMONSTRATIONS
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]\d+)?|-?\d+e[-+]\d+")


@pytest.fixture(scope="module", autouse=True)
def environment() -> dict[str, str]:
    """Return what spares Inductor in its fresh caches 15 s of compiling that no line of its code hangs on.

    Skip where Inductor makes no vector code: there it computes ``expm1`` by the C library, and rightly.
    """
    from torch._inductor import config
    from torch._inductor.cpu_vec_isa import pick_vec_isa, valid_vec_isa_list

    compiled = pick_vec_isa()
    if not compiled:
        pytest.skip("Inductor finds no vector instructions here, and the demonstration is of its vector code")
    valid_vec_isa_list.cache_clear()
    with config.patch({"cpp.vec_isa_ok": True}):  # without a try of the compiler: what the processor says that it has
        told = pick_vec_isa()
    valid_vec_isa_list.cache_clear()
    tries = {"TORCHINDUCTOR_VEC_ISA_OK": "1"} if told == compiled else {}
    return tries | {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}


@pytest.fixture
def printed(warm_compiler: WarmPython, environment: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    """Run ``python`` with some words, and return what it prints."""

    def run(*words: str) -> str:
        done = warm_compiler.run(*words, cwd=tmp_path, environment=environment)
        assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
        return done.stdout

    return run


def agree(got: str, said: str, digits: float) -> None:
    """Hold two texts to the same words, and their decimal numbers to a relative difference."""
    assert NUMBER.sub("#", got) == NUMBER.sub("#", said)
    for one, other in zip(NUMBER.findall(got), NUMBER.findall(said), strict=True):
        assert float(one) == pytest.approx(float(other), rel=digits), (one, other)


def without_seconds(text: str) -> str:
    return re.sub(r"\b\d+\.\d+ s\b", "… s", text)


@pytest.mark.torture
def test_replay_prints_what_the_readme_says(printed: Callable[..., str]) -> None:
    got = printed("-m", *shlex.split(REPLAY))
    got, said = without_seconds(got), without_seconds(DEMONSTRATIONS[REPLAY])

    def numbers_of_the_machine(text: str) -> str:
        """Without digits that follow from eager's and Inductor's last bits, and what libraries set as they begin."""
        text = re.sub(
            r"^evidence (error|relative|ulps|float64_error|eager_error|spread|bound|left changed): .*\n?",
            "",
            text,
            flags=re.M,
        )
        return re.sub(r"\d+ ULP", "… ULP", text).strip()

    agree(numbers_of_the_machine(got), numbers_of_the_machine(said), 1e-4)
    told, promised = (
        [key for key in re.findall(r"^evidence ([a-z0-9_ ]+):", text, flags=re.M) if key != "left changed"]
        for text in (got, said)
    )
    assert told == promised
    ulps = float(re.search(r"evidence ulps: (.*)", got).group(1))  # type: ignore[union-attr]
    assert ulps > 100


def test_the_python_prints_what_the_readme_says(tmp_path: Path, printed: Callable[..., str]) -> None:
    demonstration, *others = fences(README, "python")
    assert len([line for line in demonstration.splitlines() if line]) == 8
    file = tmp_path / "readme.py"
    file.write_text("\n".join([demonstration, *others]))
    lines = printed(str(file)).splitlines(keepends=True)
    agree("".join(lines[:3]), fences(README, "text")[0], 1e-4)
    eager, inductor, exact = (float(line.split()[1]) for line in lines[:3])
    assert abs(inductor - exact) > 100 * abs(eager - exact)


@pytest.mark.torture
def test_reduce_prints_what_the_readme_says(tmp_path: Path, printed: Callable[..., str]) -> None:
    got = printed("-m", *shlex.split(REDUCE))
    trials = re.compile(r"\d+ trials")
    assert trials.sub("… trials", without_seconds(got)) == trials.sub(
        "… trials", without_seconds(DEMONSTRATIONS[REDUCE])
    )
    done = subprocess.run(
        [sys.executable, "expm1/reproducer.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1 and "torchstone" not in (tmp_path / "expm1/reproducer.py").read_text()
