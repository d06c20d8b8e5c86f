"""Backends with one fault each, for tests of whole runs."""

from __future__ import annotations

import os
import signal
import sys

from torchstone.conformance.backends.adapters.eager import Eager
from torchstone.conformance.execution.later_calls import COMPANION


class Faulty(Eager):
    """Answers a little too much."""

    name = "faulty"

    def compile(self, fn, args):
        return lambda *tensors: fn(*tensors) + 1


class Stops(Eager):
    """Answers as many cases of a worker as $FAULTY_ANSWERS says, and hangs in the next."""

    name = "stops"

    def __init__(self):
        self.compiled = 0

    def compile(self, fn, args):
        if fn is COMPANION:
            return fn
        if self.compiled == int(os.environ["FAULTY_ANSWERS"]):
            signal.pause()
        self.compiled += 1
        return fn


class DiesInWorker(Eager):
    """Is available wherever it is not needed."""

    name = "dies-in-worker"

    def warm_up(self):
        sys.exit("no such device")
