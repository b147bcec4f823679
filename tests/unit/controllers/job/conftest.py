"""The world of one job, for the tests of its controller."""

import pytest
from world import World


@pytest.fixture(scope="session")
def world() -> type[World]:
    return World
