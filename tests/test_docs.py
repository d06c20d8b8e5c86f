"""The guides execute: Python runs, command lines parse, IR reads back, and what is said of the code is so."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from torchstone.cli import COMMANDS, build
from torchstone.compiler.ir import parse_graph, print_graph
from torchstone.conformance.execution.verdict import FAILURES, Outcome

from .guides import PAGES, command_lines, fences, name, split
from .rules import ROOT
from .warm_python import WarmPython

LONG = {f"docs/{page}.md" for page in ("adding-a-fuzz-family", "adding-a-variant", "fuzzing", "variants", "verdicts")}
"""Pages whose Python takes three seconds and more."""


# The README's blocks run in tests/test_readme.py, which looks at what they print.
@pytest.mark.few(1)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.torture if name(page) in LONG else (), id=name(page))
        for page in PAGES[1:]
        if fences(page, "python")
    ],
)
def test_python_runs(page: Path, tmp_path: Path, warm_compiler: WarmPython) -> None:
    """The blocks of a page are one program, in a process of its own: a guide may register what it makes."""
    modules, blocks = split(page)
    for module, text in modules.items():
        (tmp_path / module).write_text(text)
    file = tmp_path / "guide.py"
    file.write_text("\n".join(blocks))
    done = warm_compiler.run(file, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_backend_of_the_guide_passes_and_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from torchstone.conformance.backends import load
    from torchstone.conformance.execution.run_case import run_case
    from torchstone.conformance.program.case import Case
    from torchstone.conformance.program.program import Call, Program, Ref

    (tmp_path / "mybackend.py").write_text("\n".join(fences(ROOT / "docs/adding-a-backend.md", "python")))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    backend = load("mybackend:Traced")
    assert backend.available().ok and backend.versions()
    program = Program(("x",), (Call("torch.softmax", (Ref("x"), -1), {}, "y"),), Ref("y"))
    case = Case(program, {"x": torch.arange(6.0).reshape(2, 3)}, "guide", "softmax", "float32")
    assert run_case(case, backend).outcome == "pass"
    monkeypatch.setattr(type(backend), "compile", lambda self, fn, args: lambda *tensors: fn(*tensors) + 1)
    assert run_case(case, backend).outcome == "mismatch"


COMMAND_LINES = [(name(page), line) for page in PAGES for line in command_lines(page, "torchstone")]


@pytest.fixture
def folder_of_the_guides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Be where the paths are that the guides read: options try theirs as they are parsed."""
    monkeypatch.chdir(tmp_path)
    for path in ("regressions", "expectations"):
        (tmp_path / path).mkdir()
    for backend in ("inductor", "linalg"):
        (tmp_path / "expectations" / f"{backend}.toml").touch()


@pytest.mark.few(19)
@pytest.mark.usefixtures("folder_of_the_guides")
@pytest.mark.parametrize(("page", "line"), COMMAND_LINES)
def test_command_lines_parse(page: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for place in re.findall(r"--(?:expect|corpus) (\S+)", line):  # what a command reads has to be there
        folder = tmp_path / place if place.endswith("/") else (tmp_path / place).parent
        folder.mkdir(parents=True, exist_ok=True)
        if not place.endswith("/"):
            (tmp_path / place).touch()
    app: Any = typer.main.get_command(build())
    command, (name, *words) = app, shlex.split(line)
    while words and words[0] in getattr(command, "commands", {}):
        command, (name, *words) = command.commands[words[0]], words
    command.make_context(name, words)


@pytest.mark.parametrize("line", ["torchstone run --backend linalg --no-such", "torchstone runs diff r1 r2 --no-such"])
def test_a_wrong_command_line_is_found(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Exception, match="--no-such"):
        test_command_lines_parse("", line, tmp_path, monkeypatch)


def test_every_command_is_in_the_guides() -> None:
    text = "\n".join(page.read_text() for page in PAGES)
    assert [command for command, _, _ in COMMANDS if f"torchstone {command}" not in text] == []


@pytest.mark.parametrize(
    "target",
    sorted({line.split()[1] for page in PAGES for line in command_lines(page, "make")}),
)
def test_make_targets_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)


def test_the_expectations_of_the_guide_are_read() -> None:
    from torchstone.conformance.expectations.parse import parse_document

    page = ROOT / "docs/expectations.md"
    (text,) = fences(page, "toml")
    assert [row.issue != "" for row in parse_document(text, page).expectations.rows] == [False, True, False]


@pytest.mark.parametrize("text", [block for page in PAGES for block in fences(page, "ir")])
def test_ir_reads_back(text: str) -> None:
    assert print_graph(parse_graph(text)) == text


def test_every_outcome_is_explained_and_its_weight_is_right() -> None:
    rows = re.findall(
        r"^\| `([a-z-]+)` \| .* \| (yes)? ?\|$", (ROOT / "docs/verdicts.md").read_text(), flags=re.MULTILINE
    )
    assert {row[0] for row in rows} == {str(outcome) for outcome in Outcome}
    assert {row[0] for row in rows if row[1]} == {str(outcome) for outcome in FAILURES}


def test_every_key_of_the_json_report_is_explained(tmp_path: Path) -> None:
    from torchstone.conformance.store import Store
    from torchstone.reports.model import build_report
    from torchstone.reports.results import load_results

    from .reports.conftest import FIRST, fill

    with Store(tmp_path / "results.sqlite") as store:
        fill(store, FIRST)
        report = build_report(load_results(store), load_results(store))
    page = (ROOT / "docs/reports.md").read_text()
    rows = dict(re.findall(r"^\| (`.*?`) \| (.*) \|$", page, flags=re.MULTILINE))
    explained = {key: text for keys, text in rows.items() for key in re.findall(r"`(\w+)`", keys)}
    assert list(explained) == list(report)
    for key, value in report.items():
        first = value[0] if isinstance(value, list) and value else value
        for inner in first if isinstance(first, dict) else ():
            assert f"`{inner}`" in explained[key], (key, inner)
    assert json.loads(json.dumps(report)) == report


def test_the_reference_of_the_primitives_is_made_from_their_rows() -> None:
    reference = runpy.run_path(str(ROOT / "docs/reference.py"))
    made = reference["page"]()
    assert (ROOT / "docs/primitives.md").read_text() == made, "python docs/reference.py > docs/primitives.md"
    from torchstone.compiler.ops import PRIMITIVES

    assert all(f"`{name}`" in made for name in PRIMITIVES)


STAGES = re.findall(
    r"^### .*?`(\w+)`\n.*?^```(?:ir|mlir|text)\n(.*?)^```$",
    (ROOT / "docs/architecture.md").read_text(),
    flags=re.MULTILINE | re.DOTALL,
)


@pytest.fixture(scope="module")
def stages() -> dict[str, str]:
    """Return the stages of the program that docs/architecture.md follows."""
    import torch

    import torchstone

    def mse(x, y):
        return torch.nn.functional.mse_loss(x, y)

    args = torch.zeros(4, 8), torch.ones(4, 8)
    linalg, tensorrt = (torchstone.compile(mse, args, target=target) for target in ("linalg", "tensorrt"))
    return {**linalg.ir, "tensorrt": tensorrt.ir["tensorrt"]}


@pytest.mark.parametrize(("stage", "text"), STAGES)
def test_the_stages_of_the_architecture_page_are_real(stages: dict[str, str], stage: str, text: str) -> None:
    assert text in stages[stage]


def test_the_architecture_page_shows_every_stage(stages: dict[str, str]) -> None:
    assert [stage for stage, _ in STAGES] == list(stages)


def test_the_architecture_page_names_folders_that_exist() -> None:
    named = re.findall(r"`((?:conformance|compiler)/[\w/]+)`", (ROOT / "docs/architecture.md").read_text())
    assert named and [folder for folder in named if not (ROOT / folder).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text().partition("nav:")[2]
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if ROOT / "docs" in page.parents}
    assert pages == set(re.findall(r"[\w/-]+\.md", nav))


def test_every_variant_and_every_source_is_explained() -> None:
    from torchstone.conformance.sources import SOURCES
    from torchstone.conformance.variants.registry import VARIANTS

    variants = (ROOT / "docs/variants.md").read_text()
    assert [v for v in VARIANTS if f"`{v}`" not in variants] == []
    quickstart = (ROOT / "docs/quickstart.md").read_text()
    assert [s for s in SOURCES if f"| `{s}` |" not in quickstart] == []
