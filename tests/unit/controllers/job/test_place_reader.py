"""How places in Kueue's queues are read: seldom, and without harm where nobody answers."""

from typing import Any, cast

import anyio

from torchctl.api.kueue import KueuePendingWorkload, KueuePendingWorkloads, KueueWorkload, KueueWorkloadSpec
from torchctl.controllers.job.place_reader import PlaceReader
from torchctl.runtime.client.client import Client
from torchctl.runtime.client.errors import ApiError, Forbidden, NotFound, Unavailable
from torchctl.runtime.kinds import Key, ObjectMeta, StatusDetails
from torchctl.testing import virtualtime

PERIOD_S = 30.0


class Kueue:
    """Answers with one waiting Workload, or an error; counts the requests."""

    def __init__(self) -> None:
        self.error: ApiError | None = None
        self.asked: list[Key] = []

    async def get(self, kind: Any, name: str, namespace: str, *, subresource: str) -> KueuePendingWorkloads:
        self.asked.append(Key(namespace, name))
        if self.error is not None:
            raise self.error
        return KueuePendingWorkloads(items=(KueuePendingWorkload(ObjectMeta(name="w")),))


def waits(queue: str = "train") -> KueueWorkload:
    return KueueWorkload(ObjectMeta(name="w", namespace="team"), KueueWorkloadSpec(queue_name=queue))


async def follow(kueue: Kueue, reader: PlaceReader, rounds: int) -> list[Key]:
    """The jobs that are woken in so many rounds."""
    woken: list[Key] = []

    def enqueue(request: Key, /, *, priority: int = 0, delay_s: float = 0.0) -> None:
        woken.append(request)

    with anyio.move_on_after(PERIOD_S * rounds + 1):
        await reader.follow(enqueue)
    return woken


def reading(kueue: Kueue) -> PlaceReader:
    return PlaceReader(cast(Client, kueue), virtualtime.VirtualClock(), PERIOD_S)


def test_one_read_serves_all_jobs_of_a_queue() -> None:
    async def main() -> None:
        kueue = Kueue()
        reader = reading(kueue)
        for number in range(100):
            reader.place(Key("team", str(number)), waits())
        assert len(await follow(kueue, reader, 3)) == 100
        assert kueue.asked == [Key("team", "train")] * 3

    virtualtime.run(main)


def test_nothing_is_read_while_nobody_waits() -> None:
    async def main() -> None:
        kueue = Kueue()
        assert await follow(kueue, reading(kueue), 3) == []
        assert kueue.asked == []

    virtualtime.run(main)


def test_failed_request_ends_the_round_and_wakes_nobody() -> None:
    async def main() -> None:
        for error in (NotFound("404 page not found"), Forbidden(), Unavailable()):
            kueue = Kueue()
            reader, kueue.error = reading(kueue), error
            for name in ("a", "b"):
                reader.place(Key("team", name), waits(name))
            assert await follow(kueue, reader, 1) == []
            assert len(kueue.asked) == 1
            kueue.error = None
            assert len(await follow(kueue, reader, 1)) == 2

    virtualtime.run(main)


def test_missing_local_queue_does_not_hide_the_others() -> None:
    async def main() -> None:
        kueue = Kueue()
        reader, kueue.error = reading(kueue), NotFound(details=StatusDetails(name="train"))
        for name in ("a", "b"):
            reader.place(Key("team", name), waits(name))
        await follow(kueue, reader, 1)
        assert len(kueue.asked) == 2

    virtualtime.run(main)
