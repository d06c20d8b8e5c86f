"""Text -> Graph: the inverse of the printer. The text is only ever parsed, never evaluated."""

from __future__ import annotations

import json
import re
from typing import Any

from torchstone.compiler.diagnostics import TorchstoneError, did_you_mean
from torchstone.compiler.ir.dims import parse_dim
from torchstone.compiler.ir.dtypes import BY_SHORT
from torchstone.compiler.ir.graph import Frame, Graph, Location, Operand, Operation, Value
from torchstone.compiler.ir.types import PRIM_TYPES, Named, PrimType, TensorType, Type

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<value>%[A-Za-z0-9_.]+)
      | (?P<dim><[^<>"]*>)
      | (?P<number>[-+]?(?:inf\b|nan\b|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))
      | (?P<word>@?[A-Za-z_][A-Za-z0-9_.]*)
      | (?P<punct>[()\[\]{}=:,?*+\-])""",
    re.VERBOSE,
)


class ParseError(TorchstoneError):
    """The text is not a graph; the message gives line and column."""


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str, int]] = []
        self.index = 0
        self.values: dict[str, Value] = {}
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            if not match:
                raise self.error(f"unexpected {text[position]!r}", position)
            if match.lastgroup != "space":
                self.tokens.append((match.lastgroup or "", match.group(), position))
            position = match.end()
        self.tokens.append(("end", "end of text", len(text)))

    def error(self, message: str, position: int | None = None) -> ParseError:
        at = self.tokens[self.index][2] if position is None else position
        line = self.text.count("\n", 0, at) + 1
        return ParseError(f"line {line}, column {at - self.text.rfind(chr(10), 0, at)}: {message}")

    @property
    def here(self) -> str:
        return self.tokens[self.index][1]

    @property
    def kind(self) -> str:
        return self.tokens[self.index][0]

    def take(self, text: str | None = None, kind: str | None = None) -> str:
        if (text is not None and self.here != text) or (kind is not None and self.kind != kind):
            raise self.error(f"expected {text or kind}, got {self.here!r}")
        self.index += 1
        return self.tokens[self.index - 1][1]

    def accept(self, text: str) -> bool:
        if self.here == text:
            self.index += 1
            return True
        return False

    def separated(self, close: str, item: Any) -> list[Any]:
        items: list[Any] = []
        while not self.accept(close):
            if items:
                self.take(",")
            items.append(item())
        return items

    def type(self) -> Type:
        name = self.take(kind="word")
        if name in PRIM_TYPES and self.here != "[":
            return PrimType(name)
        if name not in BY_SHORT:
            self.index -= 1
            raise self.error(f"unknown type {name!r}{did_you_mean(name, [*BY_SHORT, *PRIM_TYPES])}")
        start = self.tokens[self.index][2] + 1
        self.take("[")
        depth, parts = 0, []
        while self.here != "]" or depth:
            if self.kind == "end":
                raise self.error("unclosed [")
            depth += {"(": 1, ")": -1}.get(self.here, 0)
            if self.here == "," and not depth:
                parts.append(self.text[start : self.tokens[self.index][2]])
                start = self.tokens[self.index][2] + 1
            self.index += 1
        parts.append(self.text[start : self.tokens[self.index][2]])
        self.take("]")
        try:
            shape = tuple(None if p.strip() == "?" else parse_dim(p) for p in parts if p.strip())
        except ValueError as error:
            raise self.error(str(error)) from None
        return TensorType(shape, BY_SHORT[name])

    def typed(self) -> Value:
        name = self.take(kind="value")[1:]
        self.take(":")
        if name in self.values:
            raise self.error(f"%{name} is defined twice")
        return Value(self.type(), name)

    def operand(self) -> Operand:
        kind, text = self.kind, self.here
        self.index += 1
        if kind == "value":
            if text[1:] not in self.values:
                self.index -= 1
                raise self.error(f"{text} is used before it is defined")
            return self.values[text[1:]]
        if kind == "number":
            return int(text) if re.fullmatch(r"[-+]?\d+", text) else float(text)
        if kind == "string":
            return json.loads(text)
        if kind == "dim":
            return parse_dim(text[1:-1])
        if text == "[":
            return tuple(self.separated("]", self.operand))
        if kind == "word":
            return self.word(text)
        self.index -= 1
        raise self.error(f"expected an operand, got {text!r}")

    def word(self, text: str) -> Operand:
        if text in ("none", "true", "false"):
            return {"none": None, "true": True, "false": False}[text]
        if text in ("inf", "nan"):
            return float(text)
        if text == "complex":
            self.take("(")
            real, imag = self.separated(")", self.operand)
            return complex(float(real), float(imag))
        if self.here == "(":
            self.take("(")
            value = json.loads(self.take(kind="string"))
            self.take(")")
            return Named(text, value)
        if text in BY_SHORT:
            return BY_SHORT[text]
        raise self.error(f"unknown word {text!r}")

    def location(self) -> Location:
        frames: list[Frame] = []
        notes: list[str] = []
        while self.here in ("at", "via"):
            if self.take() == "via":
                notes.append(json.loads(self.take(kind="string")))
                continue
            file = json.loads(self.take(kind="string"))
            self.take(":")
            line = int(self.take(kind="number"))
            self.take(":")
            frames.append(Frame(file, line, json.loads(self.take(kind="string"))))
        return Location(tuple(frames), tuple(notes))

    def operation(self) -> Operation:
        results: list[Value] = []
        if self.kind == "value":
            results.append(self.typed())
            while self.accept(","):
                results.append(self.typed())
            self.take("=")
        name = self.take(kind="word")
        self.take("(")
        operands = tuple(self.separated(")", self.operand))
        attributes: dict[str, Any] = {}
        if self.accept("{"):
            for key, value in self.separated("}", self.attribute):
                attributes[key] = value
        for result in results:
            self.values[result.name] = result
        return Operation(name, operands, tuple(results), attributes, self.location())

    def attribute(self) -> tuple[str, Operand | Graph]:
        key = self.take(kind="word")
        self.take("=")
        return key, self.nested() if self.here == "graph" else self.operand()

    def nested(self) -> Graph:
        """Parse a graph that is an attribute: it has values and names of its own."""
        outside, self.values = self.values, {}
        graph = self.graph()
        self.values = outside
        return graph

    def argument(self) -> Value:
        value = self.typed()
        self.values[value.name] = value
        return value

    def graph(self) -> Graph:
        self.take("graph")
        name = self.take(kind="word")
        if not name.startswith("@"):
            raise self.error("a graph's name starts with @")
        self.take("(")
        graph = Graph(name[1:], self.separated(")", self.argument))
        self.take("{")
        while not self.accept("return"):
            graph.ops.append(self.operation())
        outputs = []
        while not self.accept("}"):
            if outputs:
                self.take(",")
            outputs.append(self.operand())
        graph.outputs = tuple(outputs)
        return graph

    def whole(self) -> Graph:
        graph = self.graph()
        if self.kind != "end":
            raise self.error(f"text after the graph: {self.here!r}")
        return graph


def parse_graph(text: str) -> Graph:
    """Parse one graph. ParseError gives line and column of what is wrong; types are read, not checked (see verify)."""
    return _Parser(text).whole()
