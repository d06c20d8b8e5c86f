"""Syntactic mutants: one small change in the source of the built-in compiler, drawn at random.

A mutation operator proposes changes of a syntax tree; a drawn change is compiled and put in place of the code of the
functions that hold it. Where the planted mutants next door ask for the mistakes that somebody thought of, these ask for
those that nobody did.

    torchstone fuzz --backend torchstone.conformance.mutants.syntactic:linalg+05c4cba5eb05
"""

from torchstone.conformance.mutants.syntactic.backend import BACKEND_NAME, linalg

__all__ = ["BACKEND_NAME", "linalg"]
