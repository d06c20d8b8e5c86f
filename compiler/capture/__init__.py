"""Capture: from a PyTorch callable and its example arguments to a graph of ATen ops."""
