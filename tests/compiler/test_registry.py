"""The registries: what plugins add, what they cannot break, and what a broken one says."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.distributions import distribution
from torchstone.compiler import registry
from torchstone.compiler.diagnostics import TorchstoneError
from torchstone.compiler.lowering.registry import TARGETS, find_target
from torchstone.compiler.registry import PluginWarning, Registry
from torchstone.conformance.errors import InputError, UnknownName

GROUP = "torchstone.shapes"


class Shape:
    """What is registered in these tests."""


def shapes(**rows: str) -> Registry[Shape]:
    return Registry("shape", GROUP, Shape, rows, unknown=UnknownName, broken=InputError)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    registry._plugins.cache_clear()
    loaded = set(sys.modules)
    yield tmp_path
    registry._plugins.cache_clear()
    for name in set(sys.modules) - loaded:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]


def test_ours_come_first_in_their_order_and_plugins_sorted(site: Path) -> None:
    distribution(site, "late", {GROUP: {"zigzag": "late_shapes:SQUARE", "arc": "late_shapes:make"}})
    found = shapes(square="x:Y", circle="x:Z")
    assert [*found] == ["square", "circle", "arc", "zigzag"] and len(found) == 4
    assert "arc" in found and "ark" not in found and "late_shapes" not in sys.modules


def test_a_name_is_imported_when_it_is_loaded_and_not_before(site: Path) -> None:
    text = "class Late:\n    corners = 4\n\n\nTHING = Late()\n\n\ndef make():\n    return THING\n"
    points = {"class": "late:Late", "thing": "late:THING", "function": "late:make", "inner": "late:THING.corners"}
    distribution(site, "late", {GROUP: points}, {"late.py": text})
    found = Registry("shape", GROUP, ("corners",), unknown=UnknownName, broken=InputError)
    assert [*found] == sorted(points) and "late" not in sys.modules
    assert found.load("thing") is found.load("function") is sys.modules["late"].THING
    assert isinstance(found.load("class"), sys.modules["late"].Late)
    with pytest.raises(InputError, match="has no corners"):
        found.load("inner")


def test_an_unknown_name_suggests(site: Path) -> None:
    with pytest.raises(UnknownName, match=r'unknown shape "squere" .did you mean "square"'):
        shapes(square="x:Y").load("squere")
    with pytest.raises(TorchstoneError, match=r'no target "linlag" .did you mean "linalg"'):
        find_target("linlag")


def test_two_plugins_of_one_name_raise_and_name_both(site: Path) -> None:
    distribution(site, "one", {GROUP: {"arc": "a:B"}})
    distribution(site, "other", {GROUP: {"arc": "c:D"}})
    with pytest.raises(InputError, match=r'shape "arc" is registered twice, by (one|other) 1.0 and by (one|other) 1.0'):
        shapes().load("arc")
    assert [*shapes()] == ["arc"]


def test_a_plugin_does_not_take_the_name_of_ours(site: Path) -> None:
    distribution(site, "greedy", {GROUP: {"square": "a:B"}})
    with pytest.raises(InputError, match=r'shape "square" of greedy 1.0 has the name of one that torchstone ships'):
        shapes(square="x:Y").load("square")


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("no_such_module:X", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("faulty:MISSING", "cannot be loaded: AttributeError: .*MISSING"),
        ("faulty:raising", "cannot be loaded: ZeroDivisionError"),
        ("faulty:NUMBER", "is not a shape: int, where a .*Shape is needed"),
    ],
)
def test_a_broken_plugin_is_named_and_costs_no_other(site: Path, where: str, reason: str) -> None:
    text = "NUMBER = 3\n\n\ndef raising():\n    return 1 / 0\n"
    distribution(site, "torchstone-faulty", {GROUP: {"arc": where}}, {"faulty.py": text})
    found = shapes(square=f"{__name__}:Shape")
    with pytest.raises(InputError, match=f'shape "arc" of torchstone-faulty 1.0 {reason}'):
        found.load("arc")
    with pytest.warns(PluginWarning, match=r'left out: shape "arc" of torchstone-faulty 1.0'):
        assert [*found.usable()] == ["square"]


def test_only_what_a_pattern_means_is_loaded(site: Path) -> None:
    distribution(site, "faulty", {GROUP: {"arc": "no_such_module:X"}})
    assert [*shapes(square="x:Y").usable("s*")] == ["square"]


def test_attributes_are_what_a_protocol_needs(site: Path) -> None:
    distribution(site, "thin", {GROUP: {"arc": "thin:ARC"}}, {"thin.py": "ARC = object()\n"})
    corners = Registry("shape", GROUP, ("corners", "area"), unknown=UnknownName, broken=InputError)
    with pytest.raises(InputError, match=r'shape "arc" of thin 1.0 is not a shape: it has no corners, area'):
        corners.load("arc")


def test_a_name_that_came_from_a_file_imports_no_module(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "beside.py").write_text("class Shape:\n    corners = 4\n")
    monkeypatch.chdir(site)
    corners = Registry("shape", GROUP, ("corners",), unknown=UnknownName, broken=InputError)
    with pytest.raises(UnknownName):
        corners.load("beside:Shape")
    assert "beside" not in sys.modules
    assert corners.find("beside:Shape").corners == 4


def test_what_we_ship_can_be_loaded() -> None:
    from torchstone.conformance.sources import SOURCES
    from torchstone.conformance.variants.registry import VARIANTS
    from torchstone.fuzz.generator.families import FAMILIES
    from torchstone.reducers.passes import PASSES

    for shipped in (TARGETS, VARIANTS, SOURCES, PASSES, FAMILIES):
        assert len(shipped.rows) >= 4
        for name in shipped.rows:
            assert shipped.load(name) is not None
    assert all(TARGETS.load(name).name == name for name in TARGETS.rows)
