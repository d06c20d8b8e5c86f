"""Each ``torchstone`` command line of the guides runs, made small: with built-in backends, few cases and little time.

What is made small stands in ``small``, and nothing else is changed. A command that is gone, an option that is refused,
a run or a file that is missing, an op or a variant that nobody knows fails the test of its page.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from torchstone import cli

from .guides import PAGES, command_lines, fences, name, split
from .rules import ROOT

# A minute of whole commands: the default suite parses each of them, in tests/test_docs.py.
pytestmark = [pytest.mark.torture, pytest.mark.usefixtures("fork_server")]

PLUGINS = "docs/adding-a-variant.md"
"""Its commands need an installed package: tests/test_plugins.py has one, examples/plugin."""
COMMANDS = {
    name(page): lines for page in PAGES if name(page) != PLUGINS and (lines := command_lines(page, "torchstone"))
}
STAND_INS = {"inductor": "eager", "onnxruntime": "linalg", "iree": "tosa"}
"""Backends that are slow or not installed with the tests, and what the command runs on in their place."""
BUG = "torchstone.conformance.mutants:linalg+sub-swapped"
FAILS = "opinfo:sub:float32:1"
"""A backend with a bug, and a case that shows it: what there is to reduce."""
INDEPENDENT = ("backends", "bisect", "controls", "doctor", "fuzz", "ops", "reduce", "replay", "selftrial")
"""Commands that depend on nothing that another left behind: the same words run once."""
ran: set[str] = set()
MODEL = "import torch\n\ndef fn(x):\n    return torch.exp(x)\n\nlog1p_exp_sum = mse = forward = fn\n"


def small(line: str) -> list[str]:
    """Return the words of a command that asks less."""
    _, command, *words = shlex.split(line)
    words = [STAND_INS.get(word, word) for word in words]
    words = [re.sub("^iree=.*", f"tosa={sys.executable}", word) for word in words]
    words = [re.sub("inductor.toml$", "eager.toml", word) for word in words]
    if importlib.util.find_spec("pyarrow") is None:
        words = [word.replace(".parquet", ".csv") for word in words]
    if "--device" in words:  # the option of a backend that has none here: eager on the CPU
        words[words.index("--device") + 1] = "cpu"
    if command == "run":
        words += ["--jobs", "1"]
        if "--last-failed" in words:  # the run that has failures
            words[words.index("--last-failed") + 1] = "r5"
            words += ["--backend", BUG]
        words = ["quick" if word == "thorough" else word for word in words]
        if "--last-failed" not in words and "--changed-since" not in words:
            words += [*([] if "--effort" in words else ["--limit", "1"]), *few(words)]
    if words[:1] == ["prune"]:  # nobody is there to be asked
        words.append("--yes")
    if command == "fuzz":
        words = [*words, "--programs", "2", "--jobs", "1"]
    if command in ("bisect", "reduce"):
        words = [FAILS if word.startswith("opinfo:") else word for word in words]
        words[words.index("--backend") + 1] = BUG
    if command == "reduce":
        words += ["--trials", "5", *(["--run", "r5"] if "--all" in words else [])]
    if command in ("controls", "selftrial") and "--list" not in words:
        words += ["--list"]
    return [command, *words]


def few(words: list[str]) -> list[str]:
    """Return the options that leave a run few ops."""
    if "nn.functional.*" in words:
        return ["--op", "!nn.functional.[a-qs-z]*"]
    if "--tag" in words:
        return ["--op", "sum"]
    if "modules" in words:
        return ["--op", "nn.L1Loss"]
    return [] if {"--case", "--corpus", "--op"} & set(words) else ["--op", "neg"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with what the guides talk of: runs r1 to r5, a model, a case, expectations, a backend."""
    folder = tmp_path_factory.mktemp("guides")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for op in ("neg", "neg", "neg", "abs"):
            assert cli.invoke(["run", "--backend", "eager", "--op", op, "--limit", "1"]) == 0
        assert cli.invoke(["run", "--backend", BUG, "--case", FAILS]) == 1
        assert cli.invoke(["reduce", FAILS, "--backend", BUG, "--trials", "1", "--out", "kept"]) == 0
    shutil.copy(folder / "kept/case.safetensors", folder)
    (folder / "regressions").mkdir()
    shutil.copy(folder / "kept/case.safetensors", folder / "regressions")
    (folder / "model.py").write_text(MODEL)
    (folder / "mybackend.py").write_text("\n".join(fences(ROOT / "docs/adding-a-backend.md", "python")))
    for page in PAGES:
        for module, text in split(page)[0].items():
            (folder / module).write_text(text)
    for where in (".", "expectations"):
        (folder / where).mkdir(exist_ok=True)
        for backend in ("eager", "linalg"):
            (folder / where / f"{backend}.toml").write_text(f'backend = "{backend}"\n')
    return folder


@pytest.mark.parametrize("page", COMMANDS)
def test_commands_run(page: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    place = tmp_path / "place"
    shutil.copytree(folder, place)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    for line in COMMANDS[page]:
        words = small(line)
        if "--executor" in words or (words[0] in INDEPENDENT and shlex.join(words) in ran):
            continue  # a cluster: tests/conformance/runner/ray
        ran.add(shlex.join(words))
        code = cli.invoke(words)
        out, err = capfd.readouterr()
        # 1 is the answer of a command that worked and found failures: of the mutant, or what is expected otherwise
        assert code in (0, 1), f"{line}\n{shlex.join(words)}\n{out}{err}"


def test_a_command_that_does_not_run_is_found(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd
) -> None:
    monkeypatch.setitem(COMMANDS, "page", ["torchstone run --backend linalg --op no_such_op"])
    with pytest.raises(AssertionError, match="no_such_op"):
        test_commands_run("page", folder, tmp_path, monkeypatch, capfd)
