"""Expansions of products of matrices, distances, Fourier transforms and triangles."""
