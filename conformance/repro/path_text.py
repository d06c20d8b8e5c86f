"""The source of a compiler's path (``compiler_paths``), without what a case does not need of it.

A path is an ordinary function. Where it asks ``needs`` in an ``if``, the text has the branch that is taken; where it
names a field of ``needs`` else, the field's value. What follows a ``return`` that is taken goes, and so does an import
that nothing is left to use.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from torchstone.conformance.repro.source import python_source

_FIELD = re.compile(r"\bneeds\.(\w+)")


@dataclass(frozen=True)
class Needs:
    """What a case needs of a path beside the plain way: the dtypes of its inputs and its results decide.

    ``foreign`` are those of its dtypes that NumPy lacks, ``results`` the dtypes of its results, where they are known.
    """

    foreign: tuple[torch.dtype, ...] = ()
    results: tuple[torch.dtype, ...] = ()
    complex: bool = False
    booleans: bool = False
    any_size: bool = False
    """Whether dims of its inputs may be of any size: ``dynamic_shapes``, the path's last parameter, says which."""
    lowering_alone: bool = False
    """Whether the compiler fails before it has lowered the program: nothing after that is run."""
    output_type: str = ""
    """torch-mlir's."""
    tool: bool = False
    """Whether ops may be among what torch-mlir lowers to whose passes are in its command-line tool alone."""

    @classmethod
    def of(cls, inputs: Iterable[torch.dtype], results: Iterable[torch.dtype] | None, **more: Any) -> Needs:
        """Return what a case needs that has these dtypes. With no ``results``, they may be others than the inputs'."""
        unknown = (torch.bfloat16, torch.complex64, torch.bool)
        dtypes = dict.fromkeys([*inputs, *(unknown if results is None else (results := tuple(results)))])
        return cls(
            foreign=tuple(dtype for dtype in dtypes if _is_foreign(dtype)),
            results=tuple(results or ()),
            complex=any(dtype.is_complex for dtype in dtypes),
            booleans=torch.bool in dtypes,
            **more,
        )

    @property
    def one_result(self) -> bool:
        """Whether the results are known to be one."""
        return len(self.results) == 1

    @property
    def plain_results(self) -> bool:
        """Whether results are known, of a case whose dtypes every runtime has as NumPy has them."""
        return bool(self.results) and not self.foreign and not self.unsigned

    @property
    def one_plain_result(self) -> bool:
        """Whether there is one of those."""
        return self.one_result and self.plain_results

    @property
    def unsigned(self) -> bool:
        """Whether integers without sign are among the results."""
        return any(str(dtype).startswith("torch.uint") for dtype in self.results)


def _is_foreign(dtype: torch.dtype) -> bool:
    try:
        torch.empty(0, dtype=dtype).numpy()
    except TypeError:
        return True
    return False


@dataclass(frozen=True)
class PathText:
    """The statements of a path: ``setup`` compiles ``program`` for ``args``, ``call`` runs it on ``args`` and returns.

    There is no ``call`` where the path ends before.
    """

    header: str
    imports: list[str]
    setup: list[str]
    call_header: str
    call: list[str]

    def once(
        self, program: str, args: str, called_with: str = "", dynamic_shapes: str = "None"
    ) -> tuple[list[str], list[str]]:
        """Return the statements that compile a program and those that call it, to ``got``, once."""
        *call, last = self.call or [""]
        result = last.removeprefix("return ")
        if result.isidentifier():
            names, last_line = {result: "got"}, []
        else:
            names, last_line = {}, [last.replace("return ", "got = ", 1)]
        names |= {"program": program, "args": called_with or args}
        called = _renamed([*call, *last_line], names) if self.call else []
        return _renamed(self.setup, {"program": program, "args": args, "dynamic_shapes": dynamic_shapes}), called

    def function(self) -> list[str]:
        """Return the path's definition as a function of a program and arguments."""
        lines = [*self.setup, "", self.call_header, *(f"    {line}" for line in self.call), "", "return call"]
        return [self.header, *(f"    {line}" if line else "" for line in lines)]


def path_text(path: Callable[..., Any], needs: Needs) -> PathText:
    """Return what a case needs of a path."""
    source, function = _parsed(path)
    imports, setup, call, call_header = [], [], [], ""
    for statement in _taken(function.body, needs):
        if isinstance(statement, ast.Import | ast.ImportFrom):
            imports.append(statement)
        elif isinstance(statement, ast.FunctionDef):
            call_header = f"def {statement.name}({ast.unparse(statement.args)}):"
            call = [line for part in _taken(statement.body, needs) for line in _text(part, source, needs)]
        elif not isinstance(statement, ast.Return):
            setup += _text(statement, source, needs)
    used = "\n".join([*setup, *call])
    found = [line for one in imports for line in _used(one, used)]
    parameters = ", ".join(["program", "args", *(["dynamic_shapes=None"] if needs.any_size else [])])
    return PathText(f"def {path.__name__}({parameters}):", found, setup, call_header, call)


@cache
def _parsed(path: Callable[..., Any]) -> tuple[list[str], ast.FunctionDef]:
    source = textwrap.dedent(inspect.getsource(path))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.FunctionDef)
    return source.splitlines(), function


def _taken(statements: Iterable[ast.stmt], needs: Needs) -> Iterator[ast.stmt]:
    """The statements that run, but for conditions of other things than needs, up to the first return."""
    for statement in statements:
        if isinstance(statement, ast.If) and (holds := _holds(statement.test, needs)) is not None:
            for inner in _taken(statement.body if holds else statement.orelse, needs):
                yield inner
                if isinstance(inner, ast.Return):
                    return
            continue
        yield statement
        if isinstance(statement, ast.Return):
            return


def _holds(test: ast.expr, needs: Needs) -> bool | None:
    """Whether a condition of needs holds; None for any other."""
    match test:
        case ast.Attribute(value=ast.Name(id="needs"), attr=field):
            return bool(getattr(needs, field))
        case ast.BoolOp(op=ast.Or(), values=values):
            held = [_holds(value, needs) for value in values]
            return None if None in held else any(held)
        case ast.Compare(left=ast.Attribute(value=ast.Name(id="needs"), attr=field), comparators=[ast.Constant(value)]):
            return bool(getattr(needs, field) == value)
    return None


def _text(statement: ast.stmt, source: list[str], needs: Needs) -> list[str]:
    """The lines of a statement, without its indentation."""
    lines = [line[statement.col_offset :] for line in source[statement.lineno - 1 : statement.end_lineno]]
    lines[0] = re.sub("^elif ", "if ", lines[0])  # the other branch of a condition that is gone
    return [_FIELD.sub(lambda found: python_source(getattr(needs, found[1])), line) for line in lines]


def _used(statement: ast.Import | ast.ImportFrom, text: str) -> list[str]:
    """An import of those of its names that a text has."""
    used = [name for name in statement.names if re.search(rf"\b{name.asname or name.name.partition('.')[0]}\b", text)]
    kept = ", ".join(ast.unparse(name) for name in used)
    start = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
    return [f"{start}import {kept}"] if used else []


def _renamed(lines: list[str], names: dict[str, str]) -> list[str]:
    """Lines with other names, but where the name is one of a keyword argument or an attribute."""
    word = re.compile(rf"(?<![.\w])({'|'.join(names)})\b(?!=)")
    return [word.sub(lambda found: names[found[1]], line) for line in lines]
