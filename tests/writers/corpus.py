"""Hostile texts: for every place that text is written to, what would run there or break it."""

from __future__ import annotations

import builtins

MARK = "torchstone_ran"
RUN = f"__import__('builtins').__setattr__('{MARK}', 1)"

TEXTS: dict[str, str] = {
    # Python source
    "docstring end": f'"""\n{RUN}\n"""',
    "docstring end, one line": f'""";{RUN};"""',
    "quote at the end": 'ends with "',
    "three quotes at the end": 'ends with """',
    "backslash at the end": "ends with \\",
    "backslash before quotes": f'\\"""\n{RUN}\n\\"""',
    "single quotes": f"'''\n{RUN}\n'''",
    "string end": f'"); {RUN}; ("',
    "string end in single quotes": f"'); {RUN}; ('",
    "line of code": f"x\n{RUN}",
    "carriage return": f"x\r{RUN}",
    "form feed": f"x\x0c{RUN}",
    "line separators": f"x\x0b{RUN}\x1c{RUN}\x1d{RUN}\x1e{RUN}\x85{RUN}\u2028{RUN}\u2029{RUN}",
    "coding cookie": "# -*- coding: utf-7 -*-\n+AGEAYgBj-",
    "format fields": "{0.__class__} {self} %s %(x)s ${HOME} $(id)",
    "unicode escape": "\\u0022\\u0022\\u0022 \\N{QUOTATION MARK} \\x22",
    # HTML, XML
    "script element": "</script><script>alert(1)</script>",
    "comment and data": "<!-- --> <![CDATA[ ]]> <?php ?>",
    "attribute end": '" onmouseover="alert(1)" x="',
    "attribute end in single quotes": "' autofocus onfocus='alert(1)",
    "image": "<img src=x onerror=alert(1)>",
    "entities": "&lt;b&gt; &amp; &#60;script&#62; &unknown;",
    "script url": "javascript:alert(1)",
    "template": "{{ 7*7 }}{% include 'x' %}{# #}",
    "json in a script": "</SCRIPT\n><!--<script>",
    # Markdown
    "table cell end": "a | b || c \\| d",
    "backslashes and bars": "\\\\| \\\\\\|",
    "link": "[x](javascript:alert(1)) ![i](http://example.com/i.png) [r]: http://example.com",
    "code span end": "`` ` ``` ````",
    "fence end": "```\n# heading\n~~~~\n---\n",
    "emphasis": "*a* _b_ **c** __d__ ~~e~~ $x$",
    "heading and rule": "\n\n# heading\n\n---\n\n- item",
    "html in markdown": "</details></td></table><h1>x</h1>",
    # spreadsheets
    "formula": "=HYPERLINK(\"http://example.com\",\"x\")",
    "formula by plus": "+1+cmd|' /C calc'!A0",
    "formula by minus": "-2+3",
    "formula by at": "@SUM(1)",
    "formula after tab": "\t=1+1",
    "formula after return": "\r=2+1",
    "formula in full width": "＝1+1",
    "formula after semicolon": "x;=cmd|'/C calc'!A0",
    "formula after semicolons and quotes": "x; \"\" =1+1;\t@SUM(1);-2+3",
    "formula after tab in a line": "x\t=1+1\n+1\r=2",
    "cells": 'a,b;c\td"e""f\n"g',
    # TOML, JSON
    "toml": "\"\n[[expect]]\nop = \"*\"\noutcome = \"pass\"\nreason = \"\"\"",
    "toml comment": "# x\n\x7f\x01",
    "json": '", "outcome": "pass", "x": "',
    # CI servers
    "workflow command": "::error file=x::y",
    "workflow command in a line": "x\n  ::stop-commands::token\n##[group]y",
    "azure command": "##vso[task.setvariable variable=x]y ##[group]z ###vso[task.complete]",
    "azure command in a line": "x\n##vso[task.setvariable variable=x]y\n ##VSO[a.b]",
    "teamcity command": "##teamcity[buildStatus status='SUCCESS']\n##teamcity[x]",
    "workflow property": "a,b:c%0A%25::d",
    # terminals
    "colours": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "link of a terminal": "\x1b]8;;http://example.com\x1b\\text\x1b]8;;\x1b\\",
    "clipboard": "\x1b]52;c;cm0gLXJm\x07",
    "c1 controls": "\x9b31m \x9d0;x\x9c \x90q\x9c",
    "backspaces": "safe\b\b\b\bevil\x7f",
    "overwritten line": "evil\rgood",
    "direction": "\u202eabc\u202c \u2066x\u2069 \u200f",
    "invisible": "a\u200bb\ufeffc\u00add\u2060e",
    "markup of rich": "[red]x[/red] [link=http://example.com]y[/link] [/] \\[z :smile: :x:",
    "bell and escape": "\a\x1b",
    # encodings
    "nul": "a\0b",
    "lone surrogates": "\ud800 \udcff x",
    "not characters": "\ufffe\uffff\U0010ffff",
    "beyond the plane": "😀 é 漢字 \u0301",
    "every control": "".join(map(chr, [*range(32), *range(127, 160)])),
    # shells, files
    "shell": "'; touch owned; echo '$(touch owned) `touch owned` !x ~ * \" & |",
    "shell newline": "x\ntouch owned\n",
    "option": "--help",
    "short option": "-rf",
    "path": "../../../../etc/passwd",
    "absolute path": "/etc/passwd",
    "dots": "..",
    "reserved": 'CON: <>:"/\\|?*',
    "empty": "",
    "blank": " \t \n ",
    "long": "x" * 3_000,
    "long word": "é" * 1_500,
    # SQL
    "sql": "'; DROP TABLE verdicts; --",
}  # fmt: skip


def ran() -> bool:
    """Whether the payload has run."""
    return hasattr(builtins, MARK)
