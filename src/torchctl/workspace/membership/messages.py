"""The messages between a worker's launcher and the job's companion, version 1. Pure data.

A launcher sends its whole state as a report, and the answer is an order. Either may be lost or repeated: a report says
everything anew, and an order names the state that is wanted.
"""

from enum import StrEnum

import msgspec

__all__ = ["VERSION", "Order", "OrderKind", "Report", "State", "Trouble", "World"]

VERSION = 1


class State(StrEnum):
    """What a launcher does."""

    BUSY = "busy"
    """It stops its program, puts a tree in place or warms up: it can neither run nor be started."""
    READY = "ready"
    """Nothing runs, and it can start at once."""
    RUNNING = "running"
    EXITED = "exited"
    """Its program ended by itself, and it asks what follows."""
    LEAVING = "leaving"
    """It was told to end, so it will not come back."""


class OrderKind(StrEnum):
    """What a launcher has to do."""

    WAIT = "wait"
    """Go on with what it does."""
    TAKE = "take"
    """Download a tree beside the one that is in place."""
    SWAP = "swap"
    """Put the downloaded tree in place, without stopping the program."""
    STOP = "stop"
    """Stop the program, put the tree in place and be ready."""
    RUN = "run"
    """Start the program as a member of a world."""
    EXIT = "exit"
    """End as the program has ended."""


class World(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A world as one of its members is told of it."""

    id: str
    epoch: int
    revision: str
    nodes: int
    rank: int
    master: str
    port: int
    restarts: int = 0
    """How often programs of earlier worlds with this revision failed and were started again."""


class Trouble(msgspec.Struct, frozen=True):
    """Why a launcher cannot take a revision."""

    revision: str
    message: str


class Report(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What a launcher says of itself."""

    index: int
    incarnation: str
    started: int
    """Start of the launcher by its own clock, in milliseconds. Of two launchers with one index the later one counts."""
    attempt: int
    seq: int
    """Grows with each report of an incarnation, so that a late one changes nothing."""
    state: State
    nodes: int
    least: int
    """Fewest and most members of a world; equal if the job is not elastic."""
    address: str
    port: int
    revision: str = ""
    """Digest of the tree that is in place."""
    staged: str = ""
    """Digest of the tree that is downloaded and verified."""
    runs: str = ""
    """Digest of the tree with which the program was started."""
    world: World | None = None
    """The world it runs in, or ran in last."""
    stopped: str = ""
    """Id of the last world that it left by an order."""
    epoch: int = 0
    """Highest epoch that it was ever given."""
    exit: int = 0
    expected: int = 0
    """How many workers the attempt began with; 0 if that is not known. An elastic job may have been scaled since."""
    budget: int = 0
    """How often a failed program may be started again."""
    order: str = ""
    """The order that it carries out: it need not be given again."""
    trouble: Trouble | None = None
    version: int = VERSION


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a launcher is told."""

    kind: OrderKind
    revision: str = ""
    world: World | None = None
    version: int = VERSION

    @property
    def name(self) -> str:
        """Names the order in a report of the launcher that carries it out."""
        return f"{self.kind} {self.world.id if self.world else self.revision}".rstrip()
