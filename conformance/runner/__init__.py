"""The isolated runner: a pool of worker processes, and the run that feeds it."""
