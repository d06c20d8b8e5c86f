"""Runtimes: what calls a lowered program, on the CPU and by TensorRT."""
