"""The private names of PyTorch that torchstone uses: this PyTorch has each, and what another lacks is told."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import sys
import types
from collections.abc import Iterator
from functools import cache

import pytest
import torch

from tests.private_names import HOME, aliases_of, dotted, private_names
from tests.rules import ROOT, import_without, run, sources
from torchstone.compiler import _torch
from torchstone.compiler._torch import names, pytrees, tensors
from torchstone.compiler._torch.names import MissingName, Names, PrivateName, attributes, uses

MODULES = [module.name for module in pkgutil.iter_modules(_torch.__path__, f"{HOME}.")]


def test_this_pytorch_has_every_name() -> None:
    lacking = _torch.missing()
    assert not lacking, f"PyTorch {torch.__version__} lacks:\n" + "\n".join(lacking)


def test_every_name_says_what_it_is_for() -> None:
    known = _torch.every_name()
    assert len(known) > 150  # a subject that is no longer imported would take its names along
    assert [name.path for name in known if not name.purpose or name.purpose[0].isupper()] == []


def test_importing_the_package_looks_nothing_up() -> None:
    code = f"import importlib, sys\nfor name in {MODULES}: importlib.import_module(name)\n"
    costly = ["sympy", "torch._dynamo", "torch._inductor", "torch.testing._internal.opinfo"]
    done = run([sys.executable, "-c", f"{code}print([name for name in {costly} if name in sys.modules])"])
    assert done.stdout.strip() == "[]"


def test_the_register_imports_without_torch() -> None:
    assert import_without(["torch"], [HOME, f"{HOME}.names", f"{HOME}.operators", f"{HOME}.python_modules"]) == ""


@cache
def _asked() -> frozenset[tuple[str, str]]:
    """Each name that the tree asks of the package, with its module there."""
    return frozenset(_asking())


def _asking() -> Iterator[tuple[str, str]]:
    for module, path in sources():
        if module.startswith(HOME):
            continue
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        aliases = {ours: theirs for ours, theirs in aliases_of(nodes) if theirs.startswith(f"{HOME}.")}
        found = [
            *aliases.values(),
            *filter(None, (dotted(n, aliases) for n in nodes if isinstance(n, ast.Attribute))),
        ]
        for name in found:
            subject, _, rest = name.removeprefix(f"{HOME}.").partition(".")
            if rest:
                yield subject, rest.partition(".")[0]


def test_the_package_has_every_name_that_is_asked_of_it() -> None:
    asked = _asked()
    assert len(asked) > 80
    lacking = []
    for subject, name in sorted(asked):
        module = importlib.import_module(f"{HOME}.{subject}")
        try:
            getattr(module, name)
        except AttributeError:
            lacking.append(f"{subject}.{name}")
        except ImportError:  # which test_this_pytorch_has_every_name tells
            continue
    assert lacking == []


def test_no_name_is_left_over() -> None:
    """A row that nobody asks for, and that its own module does not use, is deleted."""
    asked = set(_asked())
    unused = []
    for name in MODULES:
        table = getattr(importlib.import_module(name), "_NAMES", None)
        subject = name.rpartition(".")[2]
        unused += [f"{subject}.{row}" for row in (table.rows if table else ()) if (subject, row) not in asked]
    assert unused == []


def test_wrappers_register_what_they_use() -> None:
    """A name in the package's own code is registered, or the start of one, or an attribute of one."""
    paths = [name.path for name in _torch.every_name()]
    last = {path.rpartition(".")[2] for path in paths} | set(tensors.OWN_ATTRIBUTES) | {"_mode_key"}
    unregistered = []
    for path in sorted((ROOT / "compiler" / "_torch").glob("*.py")):
        for found in private_names(ast.parse(path.read_text())) if path.stem != "python_modules" else ():
            name = found.name.partition(".__")[0]
            near = any(known.startswith(name) or name.startswith(f"{known}.") for known in paths)
            if not near and name.removeprefix(".") not in last:
                unregistered.append(f"{path.name}:{found.line}: {name}")
    assert unregistered == []


# -- what a PyTorch lacks


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> dict[str, PrivateName]:
    """An empty register."""
    made: dict[str, PrivateName] = {}
    monkeypatch.setattr(names, "_REGISTER", made)
    return made


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module that hands on a name that PyTorch has and one that it has not."""
    made = types.ModuleType("handing_on")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    rows = {"gone": ("torch._C._gone", "hear of it"), "tree_map": ("torch.utils._pytree.tree_map", "map")}
    made.__getattr__ = Names(made.__name__, rows).look_up  # type: ignore[method-assign]
    return made


def test_all_that_is_missing_is_told_at_once(register: dict[str, PrivateName]) -> None:
    @uses("torch._C._no_such_function")
    def wrapper() -> None:
        """Count what nobody has.

        More of it.
        """

    attributes("torch.nn.Module()", {"_buffers", "_no_such_dict"}, "keep what nobody has")
    Names("elsewhere", {"Nothing": ("torch._no_such_module.Nothing", "be nothing"), "C": ("torch._C", "be C")})
    assert _torch.missing() == [
        "torch._C._no_such_function, used to count what nobody has",
        "torch._no_such_module.Nothing, used to be nothing",
        "torch.nn.Module()._no_such_dict, used to keep what nobody has",
    ]


def test_a_missing_name_costs_only_who_asks_for_it(register: dict[str, PrivateName], module: types.ModuleType) -> None:
    from handing_on import tree_map  # type: ignore[import-not-found]

    assert tree_map is pytrees.tree_map
    assert "tree_map" in vars(module)  # it is looked up once
    message = f"PyTorch {torch.__version__} lacks torch._C._gone, used to hear of it"
    with pytest.raises(MissingName, match=f"^{re.escape(message)}$"):
        from handing_on import gone  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'unheard_of'"):
        from handing_on import unheard_of  # noqa: F401


def test_a_name_that_needs_a_package_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> types.ModuleType:
        if name == "torch":
            return torch
        raise ModuleNotFoundError("No module named 'onnxscript'", name="onnxscript")

    monkeypatch.setattr(names.importlib, "import_module", find)
    with pytest.raises(ModuleNotFoundError, match="onnxscript"):
        PrivateName("torch.no_such_module", "export").find()


def test_a_wrapper_has_to_say_what_it_is_for(register: dict[str, PrivateName]) -> None:
    with pytest.raises(ValueError, match="does not say what for"):
        uses("torch._C._foo")(lambda: None)
    assert not register
