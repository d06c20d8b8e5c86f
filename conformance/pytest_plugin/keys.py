"""The names under which the plugin keeps things in pytest's configuration, node ids and reports."""

from __future__ import annotations

from typing import Any

import pytest

SUITE = "torchstone"  # what node ids of the suite begin with: torchstone::BACKEND::CASE
SELECTION = pytest.StashKey[Any]()  # an options.Selection
OUTCOME = "torchstone_outcome"
