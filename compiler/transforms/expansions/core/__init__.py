"""Expansions of core ops: elementwise, reductions, scans, views, joins, creation, sorting."""
