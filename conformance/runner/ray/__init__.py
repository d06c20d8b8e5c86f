"""Runs on a Ray cluster: workers on its nodes, asked as a local pool is."""
