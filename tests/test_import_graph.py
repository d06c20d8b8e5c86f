"""The import graph has no cycles and no more lazy imports than are held; each rule is seen to fire."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from .import_graph import MOST_LAZY, Import, broken, cycles, imports
from .rules import ROOT

ROOM = "torchstone.compiler"


def test_no_module_imports_itself_through_others() -> None:
    assert broken() == []


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two modules of the compiler, of which the first imports the second."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "__init__.py").write_text("")
    (tmp_path / "compiler" / "one.py").write_text(f"from {ROOM}.two import f\n")
    (tmp_path / "compiler" / "two.py").write_text("def f(): pass\n")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "lazy"),
    [
        (f"import {ROOM}.one\n", False),
        (f"from {ROOM} import one\n", False),
        ("from . import one\n", False),
        ("from .one import f\n", False),
        (f"def f():\n    from {ROOM}.one import f\n", True),
        (f"class C:\n    def f(self):\n        if self:\n            import {ROOM}.one\n", True),
        (f"try:\n    import {ROOM}.one\nexcept ImportError:\n    pass\n", False),
    ],
)
def test_a_cycle_is_found(tree: Path, text: str, lazy: bool) -> None:
    assert cycles(imports(tree)) == []
    (tree / "compiler" / "two.py").write_text(text)
    assert cycles(imports(tree)) == [[f"{ROOM}.one", f"{ROOM}.two"]]
    assert f"{ROOM}.two:" in broken(tree)[0] and ("(lazy)" in broken(tree)[0]) is lazy


def test_an_import_for_types_alone_is_none(tree: Path) -> None:
    text = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from {ROOM}.one import f\n"
    (tree / "compiler" / "two.py").write_text(text)
    assert [i.importer for i in imports(tree)] == [f"{ROOM}.one"]


def test_one_lazy_import_too_many_is_found(tree: Path) -> None:
    (tree / "compiler" / "three.py").write_text(f"def f():\n    import {ROOM}.two\n" * (MOST_LAZY["compiler"] + 1))
    assert broken(tree) == [
        f"compiler has {MOST_LAZY['compiler'] + 1} imports inside functions, and {MOST_LAZY['compiler']} are held"
    ]


def test_cycles_of_several_modules_are_told_apart() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("d", "e"), ("e", "d"), ("f", "a")]
    assert cycles(Import(x, y, 1, False) for x, y in edges) == [["a", "b", "c"], ["d", "e"]]
