"""A mutation: one place of a module's source, and the text that takes its place."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

REACHED = "__mutation_reached__"
"""The name that mutated code calls, with no argument, where the change takes effect. It has to return True."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """A change of a function of a module.

    ``path`` is the file, from the compiler's folder on, and ``function`` the qualified name in it. ``operator`` says
    what kind of change it is. ``start`` and ``end`` delimit the replaced bytes of the UTF-8 source, ``text`` takes
    their place. ``statement`` says that these are a statement and not an expression. ``line`` and ``last`` are the
    first and the last line of what is replaced, from 1 on. ``key`` tells the change apart from all others of the file,
    and stays what it is when the code around it moves.
    """

    path: str
    function: str
    operator: str
    start: int
    end: int
    text: str
    line: int
    last: int
    key: str
    statement: bool = False

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits of file, function and change: what a judgement on it is filed under."""
        fields = "\0".join((self.path, self.function, self.operator, self.key))
        return hashlib.sha256(fields.encode()).hexdigest()[:12]

    def mutated(self, source: str) -> str:
        """The source with the change, as one would read it."""
        return self._replaced(source, self.text)

    def instrumented(self, source: str) -> str:
        """The source with the change, which calls ``REACHED`` where it takes effect.

        What was there before stays in it, behind a condition that does not hold: every name is what it was, local,
        free or global, and so the code fits the closures that exist already.
        """
        before = source.encode()[self.start : self.end].decode()
        if self.statement and self.text == "pass":
            return self._replaced(source, f"if not {REACHED}(): {before}")
        if self.statement:
            margin = source.encode()[: self.start].decode().rpartition("\n")[2]
            branches = (f"if {REACHED}():", f"    {self.text}", "else:", f"    {before}")
            return self._replaced(source, f"\n{margin}".join(branches))
        return self._replaced(source, f"(({self.text}) if {REACHED}() else ({before}))")

    def diff(self, source: str) -> tuple[str, str]:
        """The lines that change, before and after, without their indentation."""
        after = self.mutated(source)
        lines = source.splitlines()[self.line - 1 : self.last]
        more = len(after.splitlines()) - len(source.splitlines())
        changed = after.splitlines()[self.line - 1 : self.last + more]
        return _joined(lines), _joined(changed)

    def _replaced(self, source: str, text: str) -> str:
        data = source.encode()
        return (data[: self.start] + text.encode() + data[self.end :]).decode()


def _joined(lines: list[str]) -> str:
    return " ".join(line.strip() for line in lines)
