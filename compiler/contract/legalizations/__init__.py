"""FlatIR -> FlatIR, for primitives a target does not have. One rule serves every target that lacks the op."""

from torchstone.compiler.contract.rules import legalizes as LEGALIZATIONS

__all__ = ["LEGALIZATIONS"]
