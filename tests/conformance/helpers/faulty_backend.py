"""Backends with one fault each, for tests of whole runs."""

from __future__ import annotations

import os
import sys
import time

from torchstone.conformance.backends.adapters.eager import Eager


class Faulty(Eager):
    """Answers a little too much."""

    name = "faulty"

    def compile(self, fn, args):
        return lambda *tensors: fn(*tensors) + 1


class Slow(Eager):
    """Takes $FAULTY_SECONDS a case."""

    name = "slow"

    def compile(self, fn, args):
        time.sleep(float(os.environ["FAULTY_SECONDS"]))
        return fn


class DiesInWorker(Eager):
    """Is available wherever it is not needed."""

    name = "dies-in-worker"

    def warm_up(self):
        sys.exit("no such device")
