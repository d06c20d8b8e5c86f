"""Backends that break eager in their worker, and so what the oracle compares with."""

from __future__ import annotations

import os
import time

from torture_backend import Torture


class EagerDies(Torture):
    """Breaks eager in its worker, as a bad kernel in PyTorch would."""

    name = "eager-dies"

    def warm_up(self):
        from torchstone.conformance.program.program import Program

        Program.__call__ = lambda self, *tensors: os.abort()

    def compile(self, fn, args):
        return lambda *tensors: tensors[0] + tensors[0]


class EagerDiesOften(Torture):
    """Breaks the second run of eager in its worker, when the backend has been called: as corrupted memory would."""

    name = "eager-dies-often"

    def warm_up(self):
        from torchstone.conformance.program.program import Program

        runs = iter(range(9))
        Program.__call__ = lambda self, *tensors: os.abort() if next(runs) else tensors[0] + tensors[0]

    def compile(self, fn, args):
        return fn


class SlowOracle(Torture):
    """Answers at once, wrongly, what takes long to judge: eager's second run, which the oracle makes, does not end."""

    name = "slow-oracle"

    def warm_up(self):
        from torchstone.conformance.program.program import Program

        runs = iter(range(9))
        Program.__call__ = lambda program, *tensors: self.judge() if next(runs) else tensors[0] + tensors[0]

    def judge(self):
        time.sleep(60)

    def compile(self, fn, args):
        return lambda *tensors: tensors[0] * 2 + 0.3


class HungryOracle(SlowOracle):
    """As ``SlowOracle``, but of memory: a gigabyte."""

    name = "hungry-oracle"

    def judge(self):
        held = bytes(range(256)) * (1 << 22)
        time.sleep(60)
        return held
