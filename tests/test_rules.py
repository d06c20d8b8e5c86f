"""Every rule of the repository holds, and is seen to fire: each has a seeded violation."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from .rules import (
    ROOT,
    copy_installed,
    import_without,
    packages,
    project,
    rooms,
    run,
    sources,
    too_long,
    without_init,
)

TOOLS = Path(sys.executable).parent


def tool(name: str) -> str:
    """Return the tool of this environment, or skip where it is not installed (its own tox environment has it)."""
    found = shutil.which(name, path=str(TOOLS)) or shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@pytest.fixture
def seeded(tmp_path: Path) -> Path:
    """Return a copy of the package, laid out as it is installed, to seed violations in."""
    return copy_installed(tmp_path)


# -- ruff: what no file may import or call


BANNED = [
    ("import compiler.ir", "TID251"),
    ("from conformance import store", "TID251"),
    ("from fuzz import choices", "TID251"),
    ("import reducers", "TID251"),
    ("import reports", "TID251"),
    ("import pickle", "TID251"),
    ("import marshal, shelve", "TID251"),
    ("import torch\ntorch.load('x')", "TID251"),
    ("eval(input())", "S307"),
    ("exec(input())", "S102"),
]


@pytest.mark.parametrize(("text", "rule"), BANNED)
def test_banned_imports_and_calls_are_found(text: str, rule: str) -> None:
    done = run(
        [tool("ruff"), "check", "--no-cache", "--stdin-filename", "conformance/seeded.py", "-"], text=text + "\n"
    )
    assert done.returncode == 1 and rule in done.stdout


def test_ruff_takes_the_right_way() -> None:
    text = '"""A module."""\n\nfrom torchstone.compiler import ir\n\n__all__ = ["ir"]\n'
    done = run([tool("ruff"), "check", "--no-cache", "--stdin-filename", "conformance/seeded.py", "-"], text=text)
    assert done.returncode == 0, done.stdout


# -- import-linter: the arrows between the rooms


def lint_imports(tree: Path) -> str:
    command = [tool("lint-imports"), "--no-cache", "--config", str(ROOT / ".importlinter")]
    return run(command, environment={"PYTHONPATH": str(tree)}, cwd=tree).stdout


SEEDS = {
    "a room imports only the rooms below it": [
        ("compiler/ir", "import torchstone.conformance.store"),
        ("conformance", "import torchstone.reducers.engine"),
        ("fuzz", "import torchstone.reports.model"),
        ("reducers", "import torchstone.cli"),
    ],
    "reports read results": [
        ("reports", "import torchstone.conformance.runner"),
        ("reports", "import torchstone.compiler.diagnostics"),
    ],
    "one module chooses the MLIR bindings": [
        ("conformance", "def f():\n    import torch_mlir.ir"),
        ("compiler/lowering/linalg", "from mlir import ir"),
    ],
    "MLIR is used under the lowerings": [("compiler/transforms", "import torchstone.compiler.mlir")],
    "the primitives need no runtime": [
        ("compiler/ops", "def f():\n    from torchstone.compiler.runtime import interpreter"),
        ("compiler/ir", "import torchstone.compiler.transforms.cse"),
    ],
    "the runtime runs what was lowered": [
        ("compiler/runtime", "from torchstone.compiler.transforms import shapes"),
        ("compiler/runtime/cpu", "def f():\n    import torchstone.compiler.transforms.cse"),
    ],
}


def test_arrows_hold(seeded: Path) -> None:
    report = lint_imports(seeded)
    assert "0 broken" in report, report


def test_wrong_arrows_are_found(seeded: Path) -> None:
    """All seeds at once: what the report says of a contract names each module that breaks it."""
    for number, seeds in enumerate(SEEDS.values()):
        for index, (folder, text) in enumerate(seeds):
            (seeded / "torchstone" / folder / f"seeded_{number}_{index}.py").write_text(text + "\n")
    (seeded / "torchstone" / "newroom").mkdir()
    (seeded / "torchstone" / "newroom" / "__init__.py").touch()
    report = lint_imports(seeded).partition("Broken contracts")[2]
    parts = re.split(r"^(.+)\n-{20,}$", report, flags=re.MULTILINE)
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    for number, (contract, seeds) in enumerate(SEEDS.items()):
        text = next(text for name, text in told.items() if name.startswith(contract))
        assert set(re.findall(r"seeded_(\d)_(\d) ->", text)) == {(str(number), str(i)) for i in range(len(seeds))}
    assert "- torchstone.newroom" in told["a room imports only the rooms below it"]


# -- what imports without torch, and without MLIR


def torch_free() -> list[str]:
    roots = ("torchstone.compiler.ir", "torchstone.compiler.lowering", "torchstone.cli", "torchstone.reports")
    names = [name for name, _ in sources() if name.startswith(roots)]
    return ["torchstone", "torchstone.compiler", "torchstone.compiler.diagnostics", "torchstone.compiler.ops", *names]


def test_text_tools_import_without_torch() -> None:
    assert import_without(["torch"], torch_free()) == ""


def test_everything_else_imports_without_mlir() -> None:
    excused = ("torchstone.compiler.mlir", "torchstone.compiler.lowering", "torchstone.compiler.runtime")
    names = [name for name, _ in sources() if not name.startswith(excused)]
    assert import_without(["mlir", "torch_mlir"], names) == ""


def test_an_import_of_torch_is_found(seeded: Path) -> None:
    (seeded / "torchstone" / "compiler" / "ir" / "seeded.py").write_text("import torch.nn\n")
    (seeded / "torchstone" / "cli" / "seeded.py").write_text("import torch_mlir.ir\n")
    names = ["torchstone.compiler.ir.seeded", "torchstone.cli.seeded", "torchstone.compiler.diagnostics"]
    found = import_without(["torch", "torch_mlir"], names, seeded).splitlines()
    assert [line.split(":")[0] for line in found] == names[:2]


# -- pytest: a warning is an error, a marker has to be declared


def test_warnings_are_errors_and_markers_strict(tmp_path: Path) -> None:
    (tmp_path / "test_right.py").write_text("def test(): pass\n")
    (tmp_path / "test_warns.py").write_text("import warnings\ndef test(): warnings.warn('old')\n")
    (tmp_path / "test_marked.py").write_text("import pytest\n@pytest.mark.unheard_of\ndef test(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c"]
    options = ["--rootdir", str(tmp_path), "--continue-on-collection-errors", str(tmp_path)]
    done = run([*command, str(ROOT / "pyproject.toml"), *options], cwd=tmp_path)
    assert "1 failed, 1 passed, 1 error" in done.stdout, done.stdout
    assert re.search("FAILED test_warns.py.*UserWarning: old", done.stdout), done.stdout
    assert re.search("ERROR test_marked.py.*unheard_of", done.stdout), done.stdout


# -- types and documentation: where the tools are installed


@pytest.mark.parametrize(("text", "passes"), [("x: int = 1", True), ("x: int = 'one'", False)])
def test_types_are_checked(tmp_path: Path, text: str, passes: bool) -> None:
    (tmp_path / "seeded.py").write_text(text + "\n")
    done = run([tool("pyright"), "--project", str(ROOT / "tests" / "types"), str(tmp_path / "seeded.py")])
    assert (done.returncode == 0) is passes, done.stdout


@pytest.mark.torture
@pytest.mark.parametrize(("text", "passes"), [("", True), ("[gone](no-such-page.md)", False)])
def test_docs_build_strictly(tmp_path: Path, text: str, passes: bool) -> None:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    for name in ("mkdocs.yml", "pyproject.toml", *(folder.name for folder in rooms().values())):
        (tmp_path / name).symlink_to(ROOT / name)  # the API pages are made from the sources
    index = tmp_path / "docs" / "index.md"
    index.write_text(index.read_text() + "\n" + text + "\n")
    # never with --quiet, which makes mkdocs forget the warnings that --strict is to count
    done = run([tool("mkdocs"), "build", "--strict", "--site-dir", str(tmp_path / "site")], cwd=tmp_path)
    assert (done.returncode == 0) is passes, done.stdout
    assert ("no-such-page.md" in done.stdout) is not passes  # it fails for this reason, not for another


# -- the tree


def test_the_package_list_is_the_tree() -> None:
    listed = project()["tool"]["setuptools"]["packages"]
    assert sorted(listed) == sorted(set(listed))
    assert set(listed) == packages()
    assert without_init() == []


def test_no_file_wants_splitting() -> None:
    assert too_long() == []


def test_tree_rules_fire(tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("compiler/new", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "compiler" / "__init__.py").write_text("")
    (tmp_path / "compiler" / "new" / "long.py").write_text("x = 1\n" * 501)
    (tmp_path / "tests" / "test_short.py").write_text("x = 1\n" * 500)
    assert packages(tmp_path) == {"torchstone.compiler", "torchstone.compiler.new"}
    assert without_init(tmp_path) == [tmp_path / "compiler" / "new"]
    assert too_long(tmp_path) == ["compiler/new/long.py"]
