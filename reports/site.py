"""Write the report's files: all of them rendered first, then put in place, so that no half report is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchstone.reports import html, markdown
from torchstone.reports.results import ReportError

FILES = {"html": "index.html", "markdown": "report.md", "json": "report.json"}


def write_site(report: dict[str, Any], out: Path, formats: Sequence[str] = tuple(FILES)) -> list[Path]:
    """Write the report into the folder ``out``, made when absent, and return the files in the order of ``FILES``.

    A file of an earlier report is replaced whole or left as it was. Raises ReportError when the folder cannot be used.
    """
    texts = {FILES[name]: _render(name, report, formats) for name in FILES if name in formats}
    temporary: list[tuple[str, Path]] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            handle, path = tempfile.mkstemp(dir=out, prefix=f".{name}.")
            temporary.append((path, out / name))
            with open(handle, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
                file.write(text)
            os.chmod(path, 0o644)
        for path, target in temporary:
            os.replace(path, target)
    except OSError as error:
        why = error.strerror or str(error)
        raise ReportError(f"cannot write the report into {out}: {why}; give another folder with --out") from error
    finally:
        for path, _ in temporary:
            with contextlib.suppress(OSError):
                os.unlink(path)
    return [out / name for name in texts]


def _render(name: str, report: dict[str, Any], formats: Sequence[str]) -> str:
    if name == "json":
        return json.dumps(report, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if name == "markdown":
        return markdown.render_markdown(report)
    return html.render_html(report, {FILES[other]: FILES[other] for other in ("markdown", "json") if other in formats})
