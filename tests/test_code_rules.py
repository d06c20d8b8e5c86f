"""No function is longer than its idea, and no handler in the compiler takes a bug for an unsupported program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from torchstone.compiler.diagnostics import raise_bug
from torchstone.compiler.ir.graph import Graph, print_literal
from torchstone.compiler.lowering.registry import find_target
from torchstone.compiler.ops import PRIMITIVES

from .code_rules import (
    CLOCKLESS,
    MOST_BROAD_HANDLERS,
    MOST_FUNCTION_LINES,
    broad_handlers,
    clocks,
    long_functions,
    names_of_several,
)
from .rules import ROOT


def test_no_function_is_too_long() -> None:
    assert long_functions() == []


def test_every_broad_handler_of_the_compiler_says_why() -> None:
    found = broad_handlers()
    assert [place for place, reason in found if not reason] == []
    assert len(found) == MOST_BROAD_HANDLERS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "__init__.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("lines", [MOST_FUNCTION_LINES, MOST_FUNCTION_LINES + 1])
def test_a_long_function_is_found(tree: Path, lines: int) -> None:
    body = '    """What it does.\n\n    At length.\n    """\n' + "    x = 1\n" * (lines - 1)
    (tree / "compiler" / "long.py").write_text(f"class C:\n    y = 1\n\n\ndef f():\n{body}")
    found = [f"compiler/long.py:5 f has {lines} lines"] if lines > MOST_FUNCTION_LINES else []
    assert long_functions(tree) == found


@pytest.mark.parametrize(
    ("handler", "found"),
    [
        ("except Exception:\n    pass", [False]),
        ("except:\n    pass", [False]),
        ("except (ValueError, BaseException) as error:\n    raise ValueError from error", [False]),
        ("except Exception:  # anything: the program runs\n    pass", [True]),
        ("except Exception:  #\n    pass", [False]),
        ("except Exception:\n    count = 1\n    raise", []),
        ("except ValueError:\n    pass", []),
    ],
)
def test_a_broad_handler_is_found(tree: Path, handler: str, found: list[bool]) -> None:
    (tree / "compiler" / "broad.py").write_text(f"try:\n    x = 1\n{handler}\n")
    assert [reason for _, reason in broad_handlers(tree)] == found


@pytest.mark.parametrize(("comment", "reason"), [("", False), ("  # anything: the program runs", True)])
def test_a_broad_suppression_is_found(tree: Path, comment: str, reason: bool) -> None:
    text = f"with contextlib.suppress(Exception):{comment}\n    x = 1\nwith contextlib.suppress(OSError):\n    x = 2\n"
    (tree / "compiler" / "broad.py").write_text(text)
    assert broad_handlers(tree) == [("compiler/broad.py:1", reason)]


def failed(function: Callable[[], object]) -> Exception:
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.mark.parametrize(
    "function",
    [
        lambda: torch.zeros(2).sum(3),
        lambda: {}["of the program"],
        lambda: PRIMITIVES["flat.bind"].evaluate(torch.tensor(1), size=2),  # refused on purpose
        lambda: PRIMITIVES["flat.add"].evaluate(torch.zeros(2), torch.zeros(3)),  # C++, called by a line of ours
    ],
)
def test_what_others_raise_is_no_bug(function: Callable[[], object]) -> None:
    raise_bug(failed(function))


@pytest.mark.parametrize("function", [lambda: print_literal(Graph), lambda: find_target("linalg").takes(None)])
def test_what_a_line_of_the_compiler_raises_is_a_bug(function: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, TypeError)):
        raise_bug(failed(function))


def test_nothing_that_decides_a_verdict_reads_a_clock() -> None:
    assert clocks() == []
    assert [name for name in CLOCKLESS if not (ROOT / name).is_dir()] == []


@pytest.mark.parametrize(
    ("place", "text", "lines"),
    [
        ("conformance/oracle/random/new.py", "import time\n", [1]),
        ("conformance/oracle/new.py", "def f():\n    from time import perf_counter as now\n    return now()\n", [2]),
        ("conformance/execution/new.py", "def f(clock):\n    return clock.monotonic()\n", [2]),
        ("conformance/variants/new.py", "import datetime\n", [1]),
        ("reducers/passes/new.py", "import resource\nx = resource.getrusage(0)\n", [2]),
        ("conformance/execution/run_case.py", "import time\n\n\ndef other():\n    return time.time()\n", [5]),
        ("conformance/execution/run_case.py", "import time\n\n\ndef run_case():\n    return time.time()\n", []),
        ("conformance/runner/pool.py", "import time\n", []),
    ],
)
def test_a_clock_is_found(tree: Path, place: str, text: str, lines: list[int]) -> None:
    (tree / place).parent.mkdir(parents=True, exist_ok=True)
    (tree / place).write_text(text)
    assert clocks(tree) == [f"{place}:{line}" for line in lines]


def test_a_name_of_the_compiler_is_of_one_class() -> None:
    assert names_of_several() == []


def test_a_name_of_two_classes_is_found(tree: Path) -> None:
    for name in ("one", "two"):
        (tree / "compiler" / f"{name}.py").write_text("class Emitter:\n    pass\n\n\nclass _Own:\n    pass\n")
    assert names_of_several(tree) == ["Emitter: compiler/one.py, compiler/two.py"]
