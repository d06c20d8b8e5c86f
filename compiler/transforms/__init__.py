"""Transforms of graphs: ATen is decomposed and expanded into FlatIR, and FlatIR is legalized for a target."""
