"""Backends that are right where they compile for the sizes they are given, and wrong at others.

Tests copy this file to where a script finds it as ``sized``.
"""

import os
import signal

import torch
from torch.utils._pytree import tree_map

from torchstone.conformance.backends.protocol import Availability


class Right:
    name = "sized:Right"

    def available(self):
        return Availability(True)

    def versions(self):
        return {}

    def compile(self, fn, args):
        return fn

    def compile_dynamic(self, fn, args, dims):
        rows = len(args[0]) if args[0].dim() else None
        return lambda *given: self.call(fn, rows, *given)

    def call(self, fn, rows, *given):
        return fn(*given)


class NoMoreRows(Right):
    def call(self, fn, rows, *given):
        def cut(out):
            return torch.cat([out[:rows], torch.zeros_like(out[rows:])]) if rows and out.dim() else out

        return tree_map(cut, fn(*given))


class FewestRows(Right):
    def call(self, fn, rows, *given):
        fewest = min((len(tensor) for tensor in given if tensor.dim()), default=0)
        return fn(*[tensor[:fewest] if tensor.dim() else tensor for tensor in given])


class OffByOne(Right):
    def call(self, fn, rows, *given):
        return tree_map(lambda out: out + 1, fn(*given))


class OneSize(Right):
    def call(self, fn, rows, *given):
        if len(given[0]) != rows:
            raise ValueError("no other number of rows")
        return fn(*given)


class FirstAnswer(Right):
    """At each of the other sizes it gives what it gave there first."""

    def __init__(self):
        self.kept = {}

    def call(self, fn, rows, *given):
        return fn(*given) if len(given[0]) == rows else self.kept.setdefault(given[0].shape, fn(*given)).clone()


class DiesAtOtherRows(Right):
    def call(self, fn, rows, *given):
        if len(given[0]) != rows:
            os.kill(os.getpid(), signal.SIGSEGV)
        return fn(*given)


class DiesAtTheThirdCall(Right):
    def compile(self, fn, args):
        calls = []

        def call(*given):
            calls.append(given)
            if len(calls) == 3:
                os.kill(os.getpid(), signal.SIGSEGV)
            return fn(*given)

        return call
