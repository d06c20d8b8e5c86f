"""Text that came from a case, a backend, a store or a file, escaped for where it goes: one function for each place.

None of it may run there, or break what it is written into. What is written goes through one of these, and
``tests/writers`` tries hostile texts on every writer.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Sequence
from typing import TextIO

CUT = "…"
NAME_LIMIT = 120
# What XML 1.0 has no way to write, not even escaped: most control characters, lone surrogates, two non-characters.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NOT_A_NAME = re.compile(r"[^\w.-]", re.ASCII)
_MARKDOWN = re.compile(r"([\\`*_\[\]|~$]|^:(?=:))")
_LOG_COMMAND = r"##(?=[\w.-]*\[)"  # of Azure (``##[group]``, ``##vso[task…]``) and TeamCity (``##teamcity[…]``)
_COMMAND = re.compile(rf"^(\s*)::|{_LOG_COMMAND}", re.MULTILINE)
_FORMULA = "=+-@＝＋－＠"
_INNER_FORMULA = re.compile(rf"([;\t\r\n][\s\"]*)(?=[{re.escape(_FORMULA)}])")


# -- a terminal, a log, a page of text


def visible(text: str) -> str:
    """Return the text on one line, its control characters shown as pictures (␛) or �, so that it can steer nothing.

    Those of Unicode count too: what turns the direction of writing, what nobody sees, lone surrogates.
    """
    return text if text.isprintable() else text.translate(_SHOWN)


def one_line(text: str, limit: int = 200) -> str:
    """Return the first line that is not blank, without control characters, cut to ``limit`` characters."""
    line = next((line for line in text[: 100 * limit].splitlines() if line.strip()), "").strip()
    line = visible(line)
    return line if len(line) <= limit else line[: limit - len(CUT)] + CUT


def printable_lines(text: str) -> str:
    """Return the text with its lines kept, tabs as spaces, and every other control character shown."""
    if "\t" in text or "\r" in text:
        text = text.replace("\r\n", "\n").expandtabs(4)
    return text if text.isprintable() else text.translate(_SHOWN_LINES)


def log_lines(text: str) -> str:
    """Return ``lines`` of which none is a command to the CI server that reads them (``::error``, ``##vso[…]``)."""
    return _COMMAND.sub(lambda found: f"{found[1]}: :" if found[0].endswith("::") else "## ", printable_lines(text))


class _Shown(dict[int, str]):
    """What stands for each character, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        shown = chr(code)
        if unicodedata.category(shown) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
            shown = chr(0x2400 + code) if code < 32 else "\u2421" if code == 127 else "\ufffd"
        self[code] = shown
        return shown


_SHOWN, _SHOWN_LINES = _Shown(), _Shown({10: "\n"})


def utf8(text: str) -> str:
    """Return text that UTF-8 can hold: lone surrogates, which it cannot, are written out (``\\udc80``)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


# -- a shell, a file system


def shell_command(words: Iterable[object]) -> str:
    """Return a command line that a POSIX shell takes apart into exactly these words.

    A word with control characters cannot be pasted: then it is a comment, which shows them.
    """
    command = shlex.join(map(str, words))
    shown = visible(command)
    return command if shown == command else f"# not to be pasted, it has control characters: {shown}"


def replay_command(what: str, backend: str, *options: str) -> str:
    """Return the command line that tries a case again, a file or an id, whatever it starts with."""
    options = ("--backend", backend, *options)
    return shell_command(
        ["torchstone", "replay", *([*options, "--", what] if what.startswith("-") else [what, *options])]
    )


def file_name(*parts: str, separator: str = "-") -> str:
    """Return the name of a file in a folder, and nowhere else, that tells the parts; one that is cut has a digest."""
    whole = separator.join(parts)
    name = _NOT_A_NAME.sub("_", whole)
    name = "_" + name[1:] if name[:1] in ("", ".", "-") else name
    if len(name) <= NAME_LIMIT:
        return name
    return f"{name[: NAME_LIMIT - 17]}-{hashlib.sha256(whole.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


# -- Python


def string_literal(source: str) -> str:
    """Return what is inside a string literal so that it means the same, and a CI server sees no command in it."""
    return _COMMAND.sub(lambda found: f"{found[1]}:\\x3a" if found[0].endswith("::") else "#\\x23", source)


def docstring(told: Sequence[str]) -> list[str]:
    """Return the lines of a string literal, each of ``told`` on one of them: nothing in it ends the literal."""
    safe = [string_literal(visible(line).replace("\\", "\\\\")) for line in told] or [""]
    safe = [line.replace('"', '\\"') if '"""' in line or line.endswith('"') else line for line in safe]
    return [f'"""{safe[0]}', *safe[1:], '"""'] if len(safe) > 1 else [f'"""{safe[0]}"""']


# -- Markdown


def markdown(value: object, limit: int = 200) -> str:
    """Return text that means itself in Markdown, in a table too: no markup, no HTML, one line."""
    return _MARKDOWN.sub(r"\\\1", _line(value, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def markdown_code(value: object, limit: int = 300) -> str:
    """Return an inline code span that holds any text, backticks and bars included."""
    line = _line(value, limit)
    # in a table, readers of Markdown disagree on what a bar after a backslash is
    if ("|" in line and "\\" in line) or _COMMAND.search(line):
        return "<code>" + re.sub(r"([^\w\s]|_)", lambda found: f"&#{ord(found[1])};", line) + "</code>"
    fence = "`" * (_longest(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") or not line else ""
    return f"{fence}{pad}{line}{pad}{fence}".replace("|", "\\|")


def markdown_block(value: str, limit: int = 1500, language: str = "text") -> str:
    """Return a fenced block that holds any text, fences included."""
    body = log_lines(value if len(value) <= limit else value[:limit] + "\n… (cut)")
    fence = "`" * max(3, _longest(body) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def _line(value: object, limit: int) -> str:
    line = visible(" ".join(str(value).split()))
    return line if len(line) <= limit else f"{line[:limit]} {CUT}"


def _longest(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


# -- XML, TOML, CSV, a CI server


def xml(text: str) -> str:
    """Return text that XML can hold, which its writer has to quote still."""
    return _NOT_XML.sub("\ufffd", text)


def toml(text: str) -> str:
    """Return a TOML basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped too.

    Lone surrogates, which TOML cannot hold, are written out.
    """
    return json.dumps(utf8(text), ensure_ascii=False).replace("\x7f", "\\u007F")


def spreadsheet(text: str) -> str:
    """Return a CSV cell that no spreadsheet takes for a formula: an apostrophe goes before what would start one.

    One that parts cells at semicolons or tabs minds no quotes inside a line: what follows those starts a cell too.
    """
    text = _INNER_FORMULA.sub(r"\1'", text)
    return f"'{text}" if text.startswith((*_FORMULA, "\t", "\r", "\n")) else text


def csv_rows(file: TextIO, rows: Iterable[Sequence[object]]) -> int:
    """Write rows of CSV, texts as ``spreadsheet`` has them; return how many.

    A NUL, at which readers stop, is a picture.
    """
    plain = csv.writer(file, lineterminator="\n")
    quoted = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)
    count = 0
    for row in rows:
        count += 1
        cells = [spreadsheet(cell).replace("\0", "\u2400") if isinstance(cell, str) else cell for cell in row]
        # the writer takes a lone carriage return for part of a word, a reader for the end of the row
        (quoted if any(isinstance(cell, str) and "\r" in cell for cell in cells) else plain).writerow(cells)
    return count


def workflow_message(text: str) -> str:
    """Return the message of a workflow command of GitHub's."""
    return printable_lines(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def workflow_property(text: str) -> str:
    """Return the value of a property of a workflow command."""
    return workflow_message(visible(text)).replace(":", "%3A").replace(",", "%2C")
