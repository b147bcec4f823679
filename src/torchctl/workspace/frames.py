"""Unpacks a body that is compressed with zstd as it arrives, in bounded memory."""

import sys
from collections.abc import Iterator

try:
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
except ImportError:  # Python 3.14 can be built without it
    ENCODINGS: tuple[str, ...] = ()
else:
    ENCODINGS = ("zstd",)

__all__ = ["ENCODING", "ENCODINGS", "Frame", "Malformed", "zstd"]

ENCODING = "zstd"
"""Its name in `Content-Encoding` (RFC 8878). `ENCODINGS` has what this Python can pack and unpack."""
_PIECE = 256 * 1024
_WINDOW_LOG = 23
"""Whoever unpacks keeps so much of what came before. 8 MiB is what RFC 8878 asks of every reader, and 128 MiB the
library's own maximum; a frame of some kilobytes takes all of it.
"""


class Malformed(Exception):
    """What came is no frame, or one that takes too much memory."""


class Frame:
    """One frame. Of one that is cut, all complete blocks are unpacked."""

    def __init__(self) -> None:
        window: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._reader = zstd.ZstdDecompressor(options=window)

    def unpack(self, received: bytes) -> Iterator[bytes]:
        """Yield the content in pieces. Raise Malformed if it is none, or something follows the frame."""
        try:
            while True:
                if piece := self._reader.decompress(received, _PIECE):
                    yield piece
                if self._reader.eof and self._reader.unused_data:
                    raise Malformed
                if self._reader.eof or self._reader.needs_input:
                    return
                received = b""
        except (zstd.ZstdError, EOFError) as error:  # EOFError: the frame had ended before
            raise Malformed from error
