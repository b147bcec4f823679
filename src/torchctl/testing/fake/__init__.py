"""A fake API server for unit tests of reconcilers: in memory, in no time, with the API server's rules for objects."""

from torchctl.testing.fake.served import Served, served_by
from torchctl.testing.fake.server import FakeApiServer

__all__ = ["FakeApiServer", "Served", "served_by"]
