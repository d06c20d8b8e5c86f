"""Reproducers: a case as a standalone script."""
