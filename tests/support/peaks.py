"""How much memory a process had at most, and what takes much of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchctl.workspace.frames import zstd


class Grown:
    """Bytes by which the process grew at most, once the block has ended."""

    bytes = 0


@contextmanager
def growing() -> Iterator[Grown]:
    """Measure the block's peak, from what is resident at its beginning."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the earlier peak
    before, grown = status("VmRSS"), Grown()
    yield grown
    grown.bytes = status("VmHWM") - before


def status(name: str, pid: int | str = "self") -> int:
    """Bytes of what /proc says of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def wide(size: int) -> bytes:
    """A frame of zeros. Whoever unpacks it has to keep the last 128 MiB."""
    options: dict[int, int] = {zstd.CompressionParameter.window_log: 27}
    writer = zstd.ZstdCompressor(options=options)
    return b"".join(writer.compress(bytes(2**20)) for _ in range(size >> 20)) + writer.flush()
