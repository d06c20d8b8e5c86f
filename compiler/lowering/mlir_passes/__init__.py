"""Passes over MLIR modules, and the named pipelines that run them."""
