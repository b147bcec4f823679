"""A simulated cluster in virtual time: the whole operator runs in it unchanged, and hours pass in seconds.

    async def main() -> None:
        async with Cluster(seed, operator()).run(replicas=2) as cluster:
            ...

    virtualtime.run(main)

The same seed gives the same history.
"""

from torchctl.testing.sim.cluster import Cluster
from torchctl.testing.sim.world import World

__all__ = ["Cluster", "World"]
