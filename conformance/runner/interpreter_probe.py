"""The check before a run in another interpreter: whether a backend can run there, and with which versions.

It runs there as a script, ``python -P interpreter_probe.py FD BACKEND FOLDER``. Until the checks have passed it imports
nothing but the standard library. It writes a line to the descriptor when the backend is about to be loaded, and then a
JSON object, also on one line. What a backend prints as it is imported goes elsewhere.
"""

import importlib
import json
import os
import sys
from typing import Any

OLDEST_PYTHON = (3, 11)
NEEDED_PACKAGES = ("torch", "numpy", "safetensors", "scipy")


LOADING = "loading"


def probe(backend: str, folder: str, descriptor: int) -> dict[str, Any]:
    """Return ``error``, or ``ok``, ``reason``, ``install`` and ``versions``."""
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST_PYTHON:
        return {"error": f"is Python {found}, and torchstone needs {'.'.join(map(str, OLDEST_PYTHON))} or newer"}
    for name in NEEDED_PACKAGES:
        try:
            importlib.import_module(name)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            return {
                "error": f"cannot import {name} ({reason}); install it there: {sys.executable} -m pip install {name}"
            }
    from importlib.metadata import version

    from torchstone.conformance.runner.frames import VERSION
    from torchstone.conformance.runner.worker import preload

    preload()
    from torchstone.conformance.backends.registry import describe_backend, load

    if ":" in backend:  # one under development, beside the user
        sys.path.insert(0, folder)
    os.write(descriptor, f"{LOADING}\n".encode())
    instance = load(backend)
    answer = describe_backend(instance)
    return {
        **answer,
        "protocol": VERSION,
        "versions": {**answer["versions"], "torch": version("torch"), "python": found},
    }


def main() -> None:
    """Probe, and write the answer; whatever is raised is in it."""
    descriptor, backend, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    try:
        answer = probe(backend, folder, descriptor)
    except BaseException as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    os.write(descriptor, json.dumps(answer, default=str).encode())
    os._exit(0)


if __name__ == "__main__":
    main()
