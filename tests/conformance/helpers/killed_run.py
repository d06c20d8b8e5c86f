"""A run that is there to be killed: ``python killed_run.py STORE COUNT``; started again it resumes.

Its backend writes the number of each case that it is asked to compile to ``$TORTURE_LOG``.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torture_backend import Torture
from torture_cases import torture_case

BACKEND = "killed_run:Logged"


class Logged(Torture):
    """Says what it is asked, and takes a while."""

    name = "logged"

    def compile(self, fn, args):
        log = os.open(os.environ["TORTURE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{int(args[0][1])}\n".encode())
        os.close(log)
        time.sleep(0.02)
        return fn


def cases(count: int):
    """Cases with their number in the second element."""
    return [torture_case("obey", index, torch.tensor([0.0, float(index)])) for index in range(count)]


def main() -> None:
    from torchstone.conformance.runner.run import run_cases
    from torchstone.conformance.store import Store

    path, count = Path(sys.argv[1]), int(sys.argv[2])
    with Store(path) as store:
        records = store.run_list()
        if records:
            store.reopen(records[-1].run)
        name = records[-1].run if records else store.new_run("killed_run", {"backends": [BACKEND]}, {})
        summary = run_cases(lambda: cases(count), [BACKEND], store, name, jobs=2)
        assert summary.ok, summary.errors
        store.finish(name)


if __name__ == "__main__":
    main()
