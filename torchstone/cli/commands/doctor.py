"""``torchstone doctor``: what is here, what is missing, and the line that installs it."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version

from torchstone.cli.output import FormatOption, TableFormat, show_table, warn

COLUMNS = ("check", "ok", "found", "fix")
CORE = ("python", "torch", "torchstone")
MODELS = 'pip install "torchstone[models]"'
"""Installs what the source ``models`` takes architectures from; it has models of its own without."""


def doctor(form: FormatOption = TableFormat.table) -> int:
    """Check the installation; exit code 0 when the core works, whatever optional part is missing."""
    rows = [_python(), _package("torchstone"), _torch(), _mlir(), _cpu_runtime(), _cache(), _compiler(), _tensorrt()]
    rows.extend(_package(name, MODELS) for name in ("timm", "transformers"))
    rows.extend(_backends())
    rows.extend(_plugins() if rows[2]["ok"] else [])
    show_table(rows, COLUMNS, form)
    broken = [row["check"] for row in rows if row["check"] in CORE and not row["ok"]]
    if broken:
        warn(f"error: {', '.join(map(str, broken))} must be put right before anything can run")
    return 1 if broken else 0


def _row(check: str, ok: bool, found: str, fix: str = "") -> dict[str, object]:
    return dict(zip(COLUMNS, (check, ok, found, "" if ok else fix), strict=True))


def _python() -> dict[str, object]:
    return _row("python", sys.version_info >= (3, 11), platform.python_version(), "install Python 3.11 or newer")


def _package(name: str, fix: str = "") -> dict[str, object]:
    try:
        return _row(name, True, version(name))
    except PackageNotFoundError:
        return _row(name, False, "not installed", fix or f"pip install {name}")


def _torch() -> dict[str, object]:
    try:
        import torch
    except Exception as error:
        return _row("torch", False, f"{type(error).__name__}: {error}", "pip install torch==2.13.*")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu only"
    wanted = torch.__version__.startswith("2.13.")
    return _row("torch", wanted, f"{torch.__version__} ({device})", "pip install torch==2.13.*")


def _mlir() -> dict[str, object]:
    from torchstone.compiler import mlir

    provider = mlir.available()
    found = {"": "none", "mlir": "upstream mlir", "torch_mlir": "torch_mlir, from the torch-mlir wheel"}[provider]
    return _row("mlir bindings", bool(provider), found, "pip install torch-mlir==20261001")


def _cpu_runtime() -> dict[str, object]:
    from torchstone.compiler.runtime.cpu import level

    wanted = os.environ.get(level.VARIABLE) or level.NATIVE
    problem = level.refusal() or level.unavailable(wanted)
    fix = f"unset {level.VARIABLE}" if not level.refusal() else "an x86-64 machine, for linalg, tosa and stablehlo"
    return _row("cpu runtime", not problem, problem or f"code for {platform.machine()}, {wanted}", fix)


def _cache() -> dict[str, object]:
    from torchstone.compiler.runtime.cpu import cache

    found = f"in memory, the last {cache.KEPT} modules" if cache.enabled() else f"off: {cache.VARIABLE} is 0"
    return _row("compile cache", cache.enabled(), found, f"unset {cache.VARIABLE}")


def _compiler() -> dict[str, object]:
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        return _row("c++ compiler", False, f"no {name}", "apt-get install g++")
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    return _row("c++ compiler", done.returncode == 0, (done.stdout.splitlines() or ["?"])[0], "apt-get install g++")


def _tensorrt() -> dict[str, object]:
    fix = "pip install tensorrt  # on a machine with an NVIDIA GPU; until then the simulator stands in"
    if importlib.util.find_spec("tensorrt") is None:
        return _row("tensorrt", False, "not installed", fix)
    try:
        import tensorrt  # pyright: ignore[reportMissingImports]

        return _row("tensorrt", True, tensorrt.__version__)
    except Exception as error:
        return _row("tensorrt", False, f"{type(error).__name__}: {error}", fix)


def _backends() -> list[dict[str, object]]:
    from torchstone.cli.commands.backends import availability_rows

    return [
        _row(
            f"backend {row['backend']}", bool(row["available"]), str(row["reason"] or "available"), str(row["install"])
        )
        for row in availability_rows()
    ]


def _plugins() -> list[dict[str, object]]:
    """What other packages register, beside backends: each is loaded, and one that cannot be is told with the reason."""
    from torchstone.compiler.diagnostics import TorchstoneError
    from torchstone.compiler.lowering.registry import TARGETS
    from torchstone.conformance.errors import InputError
    from torchstone.conformance.sources import SOURCES
    from torchstone.conformance.variants.registry import VARIANTS
    from torchstone.fuzz.generator.families import FAMILIES
    from torchstone.reducers.passes import PASSES

    rows = []
    for registry in (TARGETS, VARIANTS, SOURCES, PASSES, FAMILIES):
        for plugin in registry.plugins():
            check = f"{registry.kind} {plugin.name}"
            try:
                registry.load(plugin.name)
                rows.append(_row(check, True, f"of {plugin.distribution}"))
            except (InputError, TorchstoneError) as error:
                fix = f"repair or uninstall {plugin.distribution.partition(' ')[0]}"
                rows.append(_row(check, False, str(error), fix))
    return rows
