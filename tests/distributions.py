"""Distributions as files on a path: what ``importlib.metadata`` finds without pip having installed it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def distribution(
    site: Path, name: str, entry_points: Mapping[str, Mapping[str, str]], modules: Mapping[str, str] | None = None
) -> None:
    """Write version 1.0 of a distribution into a folder: its entry points by group, its modules by file name."""
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for group, points in entry_points.items():
        lines += [f"[{group}]", *(f"{point} = {where}" for point, where in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for file, text in (modules or {}).items():
        (site / file).write_text(text)
