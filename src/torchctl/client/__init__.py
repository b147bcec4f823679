"""The SDK: what a person's program does with jobs and queues. The command line is a face of it.

Asynchronous programs use `Client`, notebooks and scripts `BlockingClient`, which has the same methods. A name is
imported when it is first used, so that a program pays only for what it uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchctl.client.blocking import BlockingClient, BlockingJob
    from torchctl.client.client import Client
    from torchctl.client.cluster import Cluster, Target, connect
    from torchctl.client.commands import Done
    from torchctl.client.copying import Copied
    from torchctl.client.errors import (
        ClientError,
        ClusterError,
        ConfigError,
        JobFailed,
        NotAllowed,
        NotFound,
        NotInstalled,
        NotLoggedIn,
        RequestRefused,
        TimedOut,
        Unreachable,
        UsageError,
    )
    from torchctl.client.handles import JobHandle
    from torchctl.client.jobs import Job
    from torchctl.client.sync import Synced
    from torchctl.client.wait import Goal

__all__ = [
    "BlockingClient",
    "BlockingJob",
    "Client",
    "ClientError",
    "Cluster",
    "ClusterError",
    "ConfigError",
    "Copied",
    "Done",
    "Goal",
    "Job",
    "JobFailed",
    "JobHandle",
    "NotAllowed",
    "NotFound",
    "NotInstalled",
    "NotLoggedIn",
    "RequestRefused",
    "Synced",
    "Target",
    "TimedOut",
    "Unreachable",
    "UsageError",
    "connect",
]

_HOMES = {
    "BlockingClient": "blocking",
    "BlockingJob": "blocking",
    "Client": "client",
    "Cluster": "cluster",
    "Copied": "copying",
    "Done": "commands",
    "Goal": "wait",
    "Job": "jobs",
    "JobHandle": "handles",
    "Synced": "sync",
    "Target": "cluster",
    "connect": "cluster",
}
"""The modules of the public names; all others are in `errors`."""


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
