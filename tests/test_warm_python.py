"""A program in the warm Python is in a process of its own, as if it were started afresh; and its failure is seen."""

from __future__ import annotations

import json
from pathlib import Path

from .warm_python import WarmPython

SCRIPT = """
import json, os, sys
print(json.dumps([sys.argv[1:], os.getcwd(), os.environ.get("ASKED"), sys.path[:2], __name__,
    os.getpid(), "torch" in sys.modules, any(name.startswith("torchstone") for name in sys.modules)]))
"""


def test_it_has_its_own_words_folder_environment_and_path(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "programs").mkdir()
    script = tmp_path / "programs" / "script.py"
    script.write_text(SCRIPT)
    environment = {"ASKED": "for", "PYTHONPATH": f"{tmp_path}/site"}
    pids = set()
    for words in ((script, "a", 1), ("-m", "script", "a", 1)):
        done = warm_python.run(*words, cwd=tmp_path / "programs", environment=environment)
        *told, pid, torch, ours = json.loads(done.stdout)
        path = [f"{tmp_path}/programs", f"{tmp_path}/site"]
        assert told == [["a", "1"], f"{tmp_path}/programs", "for", path, "__main__"]
        assert torch and not ours
        pids.add(pid)
    assert len(pids) == 2
    assert json.loads(warm_python.run(script, cwd=tmp_path).stdout)[2] is None, "what one was told another is not"


def test_how_it_ends_is_seen(tmp_path: Path, warm_python: WarmPython) -> None:
    ends = {"1 / 0": (1, "ZeroDivisionError"), "import sys; sys.exit(3)": (3, ""), "import os; os.abort()": (-6, "")}
    for text, (code, word) in ends.items():
        (tmp_path / "script.py").write_text(text)
        done = warm_python.run(tmp_path / "script.py", cwd=tmp_path)
        assert done.returncode == code and word in done.stderr


def test_its_modules_are_those_of_a_fresh_one_and_pytorch(tmp_path: Path, warm_python: WarmPython) -> None:
    (tmp_path / "script.py").write_text(
        "import sys, torch\nprint([name for name in ('torch._dynamo', 'torch._inductor') if name in sys.modules])"
    )
    assert warm_python.run(tmp_path / "script.py", cwd=tmp_path).stdout == "[]\n"
