"""What a process finds of the machine, fact by fact: ``python facts.py [NAME …]`` prints them as a JSON object.

Each is what the library itself does or says, not the variable that is to change it.
"""

from __future__ import annotations

import hashlib
import json
import locale
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def aten() -> str:
    import torch

    return torch.backends.cpu.get_cpu_capability()


def mkl() -> str:
    from torchstone.conformance.execution.machine import mkl_branch

    return mkl_branch()


def onednn() -> str:
    """The kernel that oneDNN takes, which it tells on request only."""
    source = "import torch; torch.ones(1, 3, 8, 8).to_mkldnn().relu()"
    environment = {**os.environ, "ONEDNN_VERBOSE": "1"}
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True, env=environment)
    rows = [line.split(",") for line in done.stdout.splitlines() if ",exec," in line and ",eltwise," in line]
    return next((word for word in rows[0] if ":" in word), "unknown") if rows else "none"


def code() -> str:
    """A digest of the machine code of a kernel, and how far our code generator may go."""
    import torch

    import torchstone
    from torchstone.compiler.runtime.cpu import cache, jit
    from torchstone.compiler.runtime.cpu.level import level

    engines: list[jit.Engine] = []
    add = cache.CACHE.add
    cache.CACHE.add = lambda engine, made: (engines.append(engine), add(engine, made))[1]
    torchstone.compile(lambda x: (x @ x.mT).relu().half(), (torch.ones(300, 70),))
    with tempfile.TemporaryDirectory() as folder:
        engines[0]._engine.dump_to_object_file(f"{folder}/code.o")
        digest = hashlib.sha256(Path(f"{folder}/code.o").read_bytes()).hexdigest()[:8]
    return f"{level()} {digest}"


def threads() -> str:
    import torch

    return str(torch.get_num_threads())


def drawn() -> str:
    """What Hypothesis draws, and PyTorch, under the profile of the suite."""
    from hypothesis import given
    from hypothesis import strategies as st

    sys.path.insert(0, str(ROOT / "tests"))
    import conftest

    found: list[int] = []
    given(st.integers())(lambda number: found.append(number))()
    import torch

    conftest.seed()
    return hashlib.sha256(f"{found} {torch.rand(3).tolist()}".encode()).hexdigest()[:8]


def hash_() -> str:
    """What texts hash to; that is random unless another process finds the same."""
    command = [sys.executable, "-c", "print(hash('torchstone'))"]
    there = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return str(there) if there == hash("torchstone") else "random"


def locale_() -> str:
    return f"{locale.setlocale(locale.LC_ALL, '')}, {sys.getfilesystemencoding()}, UTF-8 mode {sys.flags.utf8_mode}"


def zone() -> str:
    return time.strftime("%z", time.localtime(0))


def umask() -> str:
    mask = os.umask(0o77)
    os.umask(mask)
    return oct(mask)


def home() -> str:
    return os.environ.get("HOME", "unset")


def path() -> str:
    return "with a space" if " " in str(ROOT) and " " in sys.prefix else "without a space"


def user() -> str:
    return "root" if os.geteuid() == 0 else "an ordinary user"


def shm() -> str:
    try:
        stats = os.statvfs("/dev/shm")
    except OSError:
        return "none"
    return f"{stats.f_blocks * stats.f_frsize >> 10} KiB"


FACTS = {
    fact.__name__.rstrip("_"): fact
    for fact in (aten, mkl, onednn, code, threads, drawn, hash_, locale_, zone, umask, home, path, user, shm)
}

NONE = "none: "


def told(name: str) -> str:
    """Return a fact, or why there is none."""
    try:
        return FACTS[name]()
    except Exception as error:
        return f"{NONE}{type(error).__name__}: {error}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as the suite has it
    print(json.dumps({name: told(name) for name in sys.argv[1:] or FACTS}))
