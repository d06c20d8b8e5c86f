"""The pytest plugin: cases as items, verdicts as outcomes, nothing at all where it is not asked for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

# What is first imported within a pytest that pytester runs in this process is forgotten after it, and torch cannot be
# imported twice.
import torchstone.conformance.pytest_plugin.items
import torchstone.conformance.runner
import torchstone.conformance.variants.registry
from torchstone.conformance.backends import load
from torchstone.conformance.program.case import Case
from torchstone.conformance.sources import opinfo

assert torchstone
pytest_plugins = ["pytester"]

WRONG = """
    import ctypes, os
    import torch
    from torchstone.conformance.backends import Availability, BackendUnsupported

    class Wrong:
        name = "wrong"
        def available(self):
            return Availability(True)
        def versions(self):
            return {}
        def compile(self, fn, args):
            size = args[0].numel()
            if size == 7:
                raise BackendUnsupported("no sevens")
            def run(*tensors):
                if size == 4:
                    ctypes.string_at(0)
                return fn(*tensors) + (size == 5)
            return run
"""
OWN = """
    import pytest, torch, torchstone

    @torchstone.case(inputs=[lambda dtype, n=n: torch.arange(n, dtype=dtype) for n in (3, 4, 5, 6, 7)])
    def doubled(x):
        return x * 2

    @torchstone.case(inputs=lambda dtype: (torch.ones(2, dtype=dtype), 3), dtypes=["float32", "int64"], name="triple")
    def test_tripled(x, factor):
        return x * factor
"""
INI = "[pytest]\naddopts = --strict-markers -ra\nfilterwarnings = error\n"


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(wrong=WRONG, test_own=OWN)
    pytester.makeini(INI)
    return pytester


def test_costs_nothing_where_it_is_not_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test(): assert not {'torch', 'torchstone.conformance.program.case'} & set(sys.modules)"
    )
    done = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:hypothesispytest")
    done.assert_outcomes(passed=1)
    text = "\n".join(line for line in done.outlines if not line.startswith("plugins:"))
    assert "torchstone" not in text and not done.errlines
    assert any(line.startswith("plugins:") and "torchstone" in line for line in done.outlines), "it was not there"


def test_verdicts_are_outcomes(project: pytest.Pytester) -> None:
    """A segfault costs one item; what is shown is the evidence, and a command that has it again."""
    done = project.runpytest_subprocess("-p", "no:xdist", "--torchstone-backend=wrong:Wrong", "--torchstone-source=own")
    done.assert_outcomes(passed=4, failed=2, skipped=1)
    done.stdout.fnmatch_lines(
        [
            "crash at stage run: killed by SIGSEGV*",
            "program  *mul*",
            "evidence stderr:*",
            "again    torchstone replay *.safetensors --backend wrong:Wrong",
            "mismatch (value) at stage compare: *expected *",
            "evidence expected: *",
            "torchstone: wrong:Wrong: 4 pass, 1 crash, 1 mismatch, 1 unsupported",
            "SKIPPED [[]1[]] test_own.py:*: unsupported: no sevens",
            "FAILED test_own.py::doubled[[]wrong:Wrong-float32-1[]] - Failed: crash*",
        ]
    )
    assert "items.py" not in done.stdout.str() and "session.py" not in done.stdout.str()  # no traceback of the harness
    saved = [word for line in done.outlines if line.startswith("again") for word in line.split() if "safet" in word]
    saved = list(dict.fromkeys(saved))  # where $CI is set, pytest shows what failed a second time in its summary
    assert [Case.load(path).id for path in saved] == ["own:doubled:float32:1", "own:doubled:float32:2"]


def test_without_a_backend_own_cases_run_on_eager(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_more="""
        import torch, torchstone
        GLOBAL = torch.randn(3)

        @torchstone.case(inputs=lambda dtype: torch.ones(3, dtype=dtype))
        def uses_a_global(x):
            return x + GLOBAL

        @torchstone.case(inputs=lambda dtype: torch.ones(3, dtype=dtype))
        def fails(x):
            return x.no_such_method()
        """
    )
    done = project.runpytest_inprocess("-p", "no:xdist", "-m", "source_own", "--torchstone-in-process")
    done.assert_outcomes(passed=7, failed=2)
    done.stdout.fnmatch_lines(
        [
            "no program can be made of uses_a_global: uses a tensor*",
            "fails fails in eager: AttributeError*",
            "*test_more.py*",
        ]
    )
    assert "pytest_plugin" not in done.stdout.str()


def test_what_cannot_be_a_case_is_said_at_collection(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_a="import torchstone\n@torchstone.case(inputs=lambda dtype: 1, dtypes=['float23'])\ndef f(x): ...",
        test_b="import torchstone\nclass TestB:\n    @torchstone.case(inputs=lambda dtype: 1)\n    def f(x): ...",
        test_c="import pytest, torchstone\n@torchstone.case(inputs=lambda dtype: 1)\n"
        "@pytest.mark.parametrize('n', [1])\ndef f(x, n): ...",
    )
    done = pytester.runpytest_inprocess("-p", "no:xdist")
    done.assert_outcomes(errors=3)
    done.stdout.fnmatch_lines(["*float23*float32*", "*functions of a module*", "*give inputs=*instead*"])


SUITE = (
    "--torchstone-backend=eager",
    "--torchstone-op=neg",
    "--torchstone-op=nn.functional.relu",
    "--torchstone-limit=2",
)


@pytest.mark.torture
def test_the_suite_under_xdist(project: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    suite = ("--torchstone-backend=eager", "--torchstone-source=models", "--torchstone-op=mlp", "--torchstone-op=lstm")
    only = ("-m", "not source_own and (op_mlp or torchstone(op='lstm'))")
    done = project.runpytest_subprocess(
        "-n2", "-v", *suite, *only, "--torchstone-limit=2", "--torchstone-variant=empty", "--torchstone-in-process"
    )
    ids = sorted(line.split()[-1] for line in done.outlines if " PASSED " in line or " SKIPPED torch" in line)
    names = ["lstm:float32:0", "lstm:float32:1", "mlp:float32:0", "mlp:float32:1"]
    assert ids == [f"torchstone::eager::models:{name}:empty" for name in names], done.stdout.str()
    told = [line for line in done.outlines if line.startswith("torchstone: eager: ")]
    assert len(told) == 1 and sum(map(int, (word for word in told[0].split() if word.isdigit()))) == 4


@pytest.fixture(scope="module")
def database() -> None:
    """Import what the suite's cases come from, and what runs them, for good."""
    for name in ("eager", "linalg"):
        assert load(name).available().ok
    assert opinfo.op_names()


def collected(project: pytest.Pytester, *options: str) -> list[str]:
    done = project.runpytest_inprocess("-p", "no:xdist", "--collect-only", "-q", *options)
    return [line for line in done.outlines if "::" in line]


@pytest.mark.usefixtures("database")
def test_ids_are_the_same_every_time_and_can_be_given_back(project: pytest.Pytester) -> None:
    options = (*SUITE, "--torchstone-dtype=all", "--torchstone-variant=all", "--deselect=test_own.py")
    first = collected(project, *options)
    assert first == collected(project, *options)
    assert len(first) == len(set(first)) > 100
    picked = [first[0], "torchstone::linalg::opinfo:neg:bool:1", "torchstone::eager::opinfo:neg:float32:77"]
    assert collected(project, *picked) == picked
    done = project.runpytest_inprocess("-p", "no:xdist", "--torchstone-in-process", picked[0], picked[2])
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["there is no case opinfo:neg:float32:77*"])


EXPECT = """
backend = "wrong:Wrong"
[[expect]]
case = "own:doubled:float32:2"
outcome = "mismatch"
reason = "it adds one"
[[expect]]
case = "own:doubled:float32:3"
outcome = ["mismatch", "error"]
reason = "it passes"
[[expect]]
case = "own:doubled:float32:4"
outcome = "crash"
reason = "it does not crash"
"""


def test_expectations(project: pytest.Pytester) -> None:
    """The outcome expected is an xfail; any other one fails, a better one too."""
    Path("known.toml").write_text(EXPECT)
    options = ("--torchstone-backend=wrong:Wrong", "--torchstone-source=own", "--torchstone-in-process")
    only = ("-k", "doubled and not float32-1")
    done = project.runpytest_inprocess("-p", "no:xdist", *options, *only, "--torchstone-expect=known.toml")
    done.assert_outcomes(passed=1, failed=2, xfailed=1, deselected=3)
    done.stdout.fnmatch_lines(
        [
            "[[]strict[]] pass, and not mismatch or error, as expected by known.toml:7 (it passes)",
            "[[]strict[]] unsupported, and not crash, as expected by known.toml:11 (it does not crash)",
            "XFAIL *doubled*float32-2* - mismatch: it adds one",
        ]
    )
    done = project.runpytest_inprocess(
        "-p", "no:xdist", "--runxfail", *options, *only, "--torchstone-expect=known.toml"
    )
    done.assert_outcomes(passed=1, failed=3, deselected=3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--torchstone-op=neg"], "give at least one --torchstone-backend"),
        (["--torchstone-backend=egaer"], 'unknown backend "egaer" (did you mean "eager"?)'),
        (["--torchstone-backend=eager", "--torchstone-source=opinf"], 'unknown source "opinf"'),
        (["--torchstone-backend=eager", "--torchstone-variant=emty"], 'unknown variant "emty"'),
        (["--torchstone-backend=eager", "--torchstone-expect=none.toml"], "none.toml: no such file"),
        (["--torchstone-backend=wrong:Gone"], 'backend "wrong:Gone" cannot be loaded'),
    ],
)
def test_bad_options_are_told_at_once(project: pytest.Pytester, options: list[str], words: str) -> None:
    done = project.runpytest_inprocess("-p", "no:xdist", *options)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines([f"ERROR: torchstone: *{words}*"])


def test_trouble_of_the_harness_is_an_error_and_no_failure(project: pytest.Pytester) -> None:
    """Once a backend's workers cannot start, the rest is told so without trying again."""
    looked = project.path / "looked"  # whether it can run is asked first, in a worker too
    gone = f"open({str(looked)!r}, 'x').close() if not os.path.exists({str(looked)!r}) else int('gone')"
    project.makepyfile(wrong=f"{WRONG}\n    import sys\n    if '/runner/' in sys.argv[0]: {gone}\n")
    done = project.runpytest_inprocess(
        "-p", "no:xdist", "--torchstone-backend=wrong:Wrong", "--torchstone-source=own", "-v"
    )
    counts = Counter(line.split()[1] for line in done.outlines if line.startswith("test_own.py::"))
    assert counts == {"ERROR": 7}, done.stdout.str()
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["harness-error at stage capture: no worker of backend wrong:Wrong can start*gone*"])
