"""Credentials as a mounted Secret offers them: a directory with a file for each key."""

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Refused
from .urls import Redactor

__all__ = ["Secret", "load_secret"]

_MAX_BYTES = 256 * 1024


@dataclass(frozen=True)
class Secret:
    """What a source may need: the keys of `kubernetes.io/basic-auth` and `kubernetes.io/ssh-auth`, and a few more.

    Args:
        username, password: for https; a password alone (a token) goes with the user name `git`.
        ssh_privatekey, known_hosts: for ssh; both are needed.
        ca: certificates to trust for this source instead of the machine's, PEM.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    ssh_privatekey: str = field(default="", repr=False)
    known_hosts: str = ""
    ca: Path | None = None

    def basic(self) -> str | None:
        """The value of an Authorization header, None without a password."""
        if not self.password:
            return None
        pair = f"{self.username or 'git'}:{self.password}"
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def redactor(self) -> Redactor:
        """A redactor that knows every form in which these credentials are used."""
        key = [line for line in self.ssh_privatekey.splitlines() if not line.startswith("---")]
        return Redactor([self.password, (self.basic() or "").removeprefix("Basic "), *key])


def load_secret(directory: Path | None) -> Secret:
    """Read the known keys of a mounted Secret; no directory, no credentials.

    Raises:
        Refused: the directory is missing, or a value is too large or not text.
    """
    if directory is None:
        return Secret()
    if not directory.is_dir():
        raise Refused("the Secret of the workspace is not mounted", next_step="Check the name in secretRef")
    ca = directory / "ca.crt"
    return Secret(
        username=_read(directory, "username").strip(),
        password=_read(directory, "password").strip() or _read(directory, "token").strip(),
        ssh_privatekey=_read(directory, "ssh-privatekey"),
        known_hosts=_read(directory, "known_hosts"),
        ca=ca if os.path.exists(ca) else None,
    )


def _read(directory: Path, key: str) -> str:
    try:
        data = (directory / key).read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Refused(f"the Secret's key {key} cannot be read: {error.strerror}") from None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise Refused(f"the Secret's key {key} is not text") from None
    if len(data) > _MAX_BYTES or "\0" in text:
        raise Refused(f"the Secret's key {key} is too large or not text")
    return text
