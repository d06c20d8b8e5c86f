"""Every mutation of a module: a walk over its functions that leaves out what is no part of what they compute."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Set

from torchstone.conformance.mutants.syntactic import operators
from torchstone.conformance.mutants.syntactic.mutation import Mutation

PRINTERS = ("__repr__", "__str__", "__format__", "describe", "print", "explain", "format_", "text")
"""How the names of functions begin whose result only a reader sees."""

REPORTS = ("Error", "Warning", "Unsupported", "unsupported", "Declined", "warn", "noted", "raise_bug")
"""How the names of calls end whose arguments are the text of an error or of a warning."""

CHECKS = ("check", "require")
"""Calls of a condition and of the text of an error."""

_OPERATIONS = ast.BinOp | ast.BoolOp | ast.UnaryOp | ast.Compare | ast.IfExp | ast.Lambda
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def mutations(path: str, source: str) -> list[Mutation]:
    """The mutations of a module's functions, in the order of the text; ``path`` is what they say they are of.

    Not mutated are what runs as the module is imported; annotations, docstrings and assertions; the text of errors and
    what only prints. Raises SyntaxError for a source that is none.
    """
    tree = ast.parse(source)
    walk = _Walk(path, source, _called_at_import(tree))
    walk.visit(tree)
    return walk.found


def _called_at_import(tree: ast.Module) -> set[str]:
    """Private functions that are called as the module is imported and named nowhere else: no mutant of them would run.

    Functions within them are another matter: they may be what is made for later.
    """
    inside = {
        one
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for part in (node.body if isinstance(node.body, list) else [node.body])
        for one in ast.walk(part)
    }
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call) and node not in inside]
    called = {one.id for one in calls if isinstance(one, ast.Name) and one.id.startswith("_")}
    named = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and (one in inside or one not in calls)}
    return (called - named) & {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


class _Walk(ast.NodeVisitor):
    def __init__(self, path: str, source: str, left_out: Set[str]) -> None:
        self.path = path
        self._left_out = left_out  # functions whose own code is no part of what is mutated
        self.found: list[Mutation] = []
        self._names: list[str] = []  # the qualified name, in parts
        self._functions: list[tuple[str, set[str]]] = []  # of the functions around: first parameter, names bound so far
        self._seen: Counter[tuple[str, ...]] = Counter()
        self._statement: ast.AST | None = None
        self._texts: dict[ast.AST, str] = {}  # of the nodes that are there: to write one down takes longest
        lines = source.splitlines(keepends=True)
        self._offsets = [0]
        for line in lines:
            self._offsets.append(self._offsets[-1] + len(line.encode()))

    # Where code is

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self._functions:
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self.visit(default)
        if not node.name.startswith(PRINTERS):
            self._enter(node.name, node, node.body)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._enter(node.name, node, node.body)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._enter("<lambda>", node, [node.body])

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        functions, self._functions = self._functions, []
        for statement in node.body:
            self.visit(statement)
        self._functions = functions
        self._names.pop()

    def _enter(self, name: str, node: FunctionNode, body: Iterable[ast.AST]) -> None:
        taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        parameters = {argument.arg for argument in taken}
        self._functions.append((taken[0].arg if taken else "", parameters))
        self._names += [name, "<locals>"]
        statement = self._statement
        for part in body:
            self.visit(part)
        self._statement = statement
        del self._names[-2:]
        self._functions.pop()

    # What is no part of what a function computes

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        self._drop(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._statement = node
            self.visit(node.value)
            self._bind(node.target)

    # Statements

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._statement = node.test
        self._propose(node.test, operators.of_condition(node.test), alone=True)
        self.visit(node.test)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return
        self._statement = node
        if isinstance(node.value, ast.Call) and not _is_report(node.value):
            self._drop(node)
        self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._statement = node
        if self._functions and all(self._is_bound(target) for target in node.targets):
            self._drop(node)
        self.visit(node.value)
        for target in node.targets:
            self._bind(target)
            if not isinstance(target, ast.Name):
                self.generic_visit(target)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._statement = node
        self._drop(node)
        for operator, other in operators.of_augmented(node) if self._functions else ():
            self._add(operator, node, ast.unparse(other), statement=True)
        self.visit(node.value)

    def visit_Break(self, node: ast.Break) -> None:
        self._drop(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._drop(node)

    def visit_For(self, node: ast.For) -> None:
        self._statement = node.iter
        self._bind(node.target)
        self.visit(node.iter)
        for statement in (*node.body, *node.orelse):
            self.visit(statement)

    # Expressions

    def visit_Call(self, node: ast.Call) -> None:
        if _is_report(node):
            return
        self._propose(node, operators.of_expression(node, self._first))
        if _named(node.func, CHECKS):  # a condition, and what is said where it does not hold
            self.visit(node.args[0]) if node.args else None
            return
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # which only tells of a mistake elsewhere
            self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._propose(node, operators.of_expression(node, self._first))
        self.visit(node.value)
        if not isinstance(node.slice, ast.Constant):  # which is one with what it is an index of
            self.visit(node.slice)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self.visit(node.iter)
        self._bind(node.target)
        for condition in node.ifs:
            self._propose(condition, operators.of_filter(condition), alone=True)
            self.visit(condition)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.expr):
            if not isinstance(node, ast.Call):
                self._propose(node, operators.of_expression(node, self._first))
        elif isinstance(node, ast.stmt):
            self._statement = node
        super().generic_visit(node)

    # What comes of it

    def _text(self, node: ast.AST) -> str:
        if node not in self._texts:
            self._texts[node] = ast.unparse(node)
        return self._texts[node]

    @property
    def _first(self) -> str:
        return self._functions[-1][0] if self._functions else ""

    def _bind(self, target: ast.AST) -> None:
        if self._functions:
            names = {one.id for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
            self._functions[-1][1].update(names)

    def _is_bound(self, target: ast.expr) -> bool:
        """Whether a function can go on without this assignment: what is assigned to has a value before."""
        if isinstance(target, ast.Tuple):
            return all(map(self._is_bound, target.elts))
        return not isinstance(target, ast.Name) or target.id in self._functions[-1][1]

    def _drop(self, node: ast.stmt) -> None:
        if self._functions:
            self._add("statement", node, "pass", statement=True)

    def _propose(self, node: ast.expr, proposals: Iterable[operators.Proposal], *, alone: bool = False) -> None:
        """Take in what might stand in place of a node; ``alone`` says that the node is no operand."""
        if not self._functions or isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            return
        for operator, other in proposals:
            text = ast.unparse(other)
            if isinstance(other, ast.IfExp | ast.Lambda if alone else _OPERATIONS):
                text = f"({text})"
            if text.strip("()") != self._text(node).strip("()"):
                self._add(operator, node, text)

    def _add(self, operator: str, node: ast.AST, text: str, *, statement: bool = False) -> None:
        if len(self._names) == 2 and self._names[0] in self._left_out:
            return
        around = self._text(self._statement) if self._statement is not None else ""
        change = f"{self._text(node)} -> {text}"
        function = ".".join(self._names).removesuffix(".<locals>")
        key = (function, operator, around, change)
        number = self._seen[key]
        self._seen[key] += 1
        start, end = (
            self._offsets[getattr(node, f"{prefix}lineno") - 1] + getattr(node, f"{prefix}col_offset")
            for prefix in ("", "end_")
        )
        mutation = Mutation(
            self.path, function, operator, start, end, text, node.lineno, node.end_lineno,  # type: ignore[attr-defined]
            "\0".join((around, change, str(number))), statement,
        )  # fmt: skip
        self.found.append(mutation)


def _is_report(node: ast.Call) -> bool:
    return _named(node.func, REPORTS)


def _named(func: ast.expr, endings: tuple[str, ...]) -> bool:
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name.endswith(endings)
