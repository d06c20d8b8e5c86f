"""The rule that no private name of PyTorch stands outside ``compiler/_torch``, as a function of a file's syntax tree.

Private are, below ``torch``: what has a component that starts with one underscore (``torch._C``,
``torch.utils._pytree``), what is under ``torch.fx.experimental``, which is public by name alone, and the attributes
that start with one underscore of the classes in ``CLASSES``. It is seen where it is imported, named, named in a string
by its whole path, or asked for by ``getattr`` and its like.

ATen ops are not private, whatever they are called: ``torch.ops.aten._to_copy`` is in every exported graph. Text of a
script that is written for a user is not looked into, nor are the tests, which look where they have to.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torchstone.compiler._torch.names import PrivateName

from .rules import ROOT, sources

HOME = "torchstone.compiler._torch"
PACKAGES = ("torch", "torchgen", "functorch")
UNSTABLE = ("torch.fx.experimental",)
# Classes that torchstone meets instances of.
CLASSES = (
    "torch.Tensor", "torch.UntypedStorage", "torch.Generator", "torch.nn.Module", "torch.nn.Parameter", "torch.SymInt",
    "torch.SymFloat", "torch.SymBool", "torch.fx.Graph", "torch.fx.Node", "torch.fx.GraphModule",
    "torch.fx.Interpreter", "torch.export.ExportedProgram", "torch._ops.OpOverload", "torch._ops.OpOverloadPacket",
    "torch._ops.HigherOrderOperator", "torch.overrides.TorchFunctionMode",
    "torch.utils._python_dispatch.TorchDispatchMode", "torch._subclasses.fake_tensor.FakeTensor",
    "torch._subclasses.fake_tensor.FakeTensorMode", "torch._subclasses.functional_tensor.FunctionalTensor",
    "torch._subclasses.functional_tensor.FunctionalTensorMode", "torch.fx.experimental.symbolic_shapes.ShapeEnv",
    "torch.fx.experimental.sym_node.SymNode", "torch.fx.experimental.proxy_tensor.ProxyTorchDispatchMode",
)  # fmt: skip
# What PyTorch sets on tensors and asks of modes, though their classes do not have it.
SET_ELSEWHERE = frozenset({"_is_param", "_dynamo", "_mode_key"})
# Functions whose second argument is the name of an attribute.
BY_NAME = frozenset({"getattr", "hasattr", "setattr", "delattr", "object"})  # mock.patch.object
_SET = re.compile(r"\bself\.(_\w+)")
_DOTTED = re.compile(r"(?:torch|torchgen|functorch)(?:\.\w+)+")


@dataclass(frozen=True, order=True)
class Found:
    """A private name, and the line it stands in."""

    line: int
    name: str


def violations(root: Path = ROOT) -> list[str]:
    """Return ``file:line: name`` for each private name of PyTorch outside the one package."""
    lines = []
    for module, path in sources(root):
        if module != HOME and not module.startswith(f"{HOME}."):
            found = private_names(ast.parse(path.read_text()))
            lines += [f"{path.relative_to(root)}:{each.line}: {each.name}" for each in found]
    return lines


def private_names(tree: ast.Module) -> list[Found]:
    """Return the private names of PyTorch in a file, in the order of its lines."""
    return sorted(set(_found(tree)))


def is_private(path: str) -> bool:
    """Say whether a dotted name below torch is private."""
    first, *parts = path.split(".")
    if first not in PACKAGES or parts[:1] == ["ops"]:
        return False
    return any(_underscored(part) for part in parts) or f"{path}.".startswith(tuple(f"{u}." for u in UNSTABLE))


def _underscored(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


@cache
def attributes(path: str = "") -> frozenset[str]:
    """Return the private attributes of a class of PyTorch, of all of ``CLASSES`` without one.

    They are those that the class has, and those that the code of it and its bases sets on ``self``.
    """
    if not path:
        return SET_ELSEWHERE.union(*map(attributes, CLASSES))
    names: set[str] = set()
    found = PrivateName(path, "be looked at").find()
    for cls in found.__mro__ if isinstance(found, type) else ():
        if cls.__module__.partition(".")[0] in PACKAGES:
            names.update(vars(cls))
            with contextlib.suppress(OSError, TypeError):  # of one in C, there is none
                names.update(_SET.findall(inspect.getsource(cls)))
    return frozenset(filter(_underscored, names))


def _found(tree: ast.Module) -> Iterator[Found]:
    nodes = [*ast.walk(tree)]
    aliases = dict(aliases_of(nodes))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    inside: set[int] = set()  # of a dotted name that has been looked at as a whole
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (Found(node.lineno, name) for name in _imported(node) if is_private(name))
        elif isinstance(node, ast.Attribute):
            path = dotted(node, aliases)
            if path is None and node.attr in attributes() and not _is_self(node.value):
                yield Found(node.lineno, f".{node.attr}")
            elif path is not None and id(node) not in inside and is_private(path):
                yield Found(node.lineno, path)
            if path is not None:
                inside.update(map(id, ast.walk(node.value)))
        elif isinstance(node, ast.Call):
            yield from _asked_by_name(node, aliases)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            if _DOTTED.fullmatch(node.value) and is_private(node.value):
                yield Found(node.lineno, node.value)
        elif isinstance(node, ast.ClassDef):
            yield from _inherited(node, aliases)


def _imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [] if node.level else [f"{node.module}.{alias.name}" for alias in node.names]


def aliases_of(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, str]]:
    """What the names that a file imports from PyTorch, and from the one package, stand for."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias, path in zip(node.names, _imported(node), strict=False):
                top = path.partition(".")[0]
                if top in PACKAGES or path.startswith(f"{HOME}."):
                    plain = isinstance(node, ast.Import) and alias.asname is None
                    yield (top, top) if plain else (alias.asname or alias.name, path)


def dotted(node: ast.expr, aliases: dict[str, str]) -> str | None:
    """The dotted name that an expression is, if it starts at what was imported."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in aliases:
        return None
    return ".".join([aliases[node.id], *reversed(parts)])


def _is_self(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Name) and node.id in ("self", "cls", "super")


def _asked_by_name(node: ast.Call, aliases: dict[str, str]) -> Iterator[Found]:
    """``getattr(torch, "_x")``, ``getattr(torch, f"_{x}")``, ``hasattr(op, "_x")``, ``patch.object(env, "_x")``."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if called not in BY_NAME or len(node.args) < 2:
        return
    owner, name = node.args[:2]
    if isinstance(name, ast.JoinedStr) and name.values:
        name = name.values[0]  # the rest is known when it runs
    if not isinstance(name, ast.Constant) or not isinstance(name.value, str) or not _underscored(name.value):
        return
    path = dotted(owner, aliases)
    if path is not None and path.partition(".")[0] in PACKAGES:
        if is_private(f"{path}.{name.value}") and not is_private(path):
            yield Found(node.lineno, f"{path}.{name.value}")
    elif name.value in attributes() and not _is_self(owner):
        yield Found(node.lineno, f".{name.value}")


def _inherited(node: ast.ClassDef, aliases: dict[str, str]) -> Iterator[Found]:
    """What a class of ours overrides, reads or sets of the private attributes of a class of PyTorch that it is."""
    paths = list(filter(None, (dotted(base, aliases) for base in node.bases)))
    private = SET_ELSEWHERE.union(*map(attributes, paths)) if paths else frozenset()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef) and inner.name in private:
            yield Found(inner.lineno, f".{inner.name}")
        elif isinstance(inner, ast.Attribute) and inner.attr in private and _is_self(inner.value):
            yield Found(inner.lineno, f".{inner.attr}")
