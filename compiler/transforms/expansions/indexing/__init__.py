"""Expansions of ops that read or write at computed places."""
