"""Tests with many cases: a table whose head names what a row holds."""

from typing import Any

import pytest


def cases(names: str, *rows: Any, **how: Any) -> pytest.MarkDecorator:
    """A test for each of these rows, which hold what these names say, apart by spaces."""
    return pytest.mark.parametrize(",".join(names.split()), rows, **how)
