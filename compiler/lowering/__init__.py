"""Lowerings: from a FlatIR graph to what a target runs, a package for each target."""
