"""Reads credentials from a mounted Secret: a directory with a file for each key."""

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path

from .errors import Refused
from .urls import Redactor

__all__ = ["S3Access", "Secret", "load_secret"]

_MAX_BYTES = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """The credentials, address and region of an S3 server.

    Args:
        region: us-east-1 by default, which most servers besides AWS accept too.
        endpoint: `https://host` or `http://host`; AWS's own if it is empty.
        addressing: `path` (bucket in the path) or `virtual` (bucket in the host); empty: virtual at AWS, else path.
    """

    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = ""
    addressing: str = ""


@dataclass(frozen=True)
class Secret:
    """The credentials of a source.

    The Secret's keys are those of `kubernetes.io/basic-auth` and `kubernetes.io/ssh-auth`, the names of AWS's
    environment variables, and a few more.

    Args:
        username, password: for https; a password alone (a token) goes with the user name `git`.
        ssh_privatekey, known_hosts: for ssh; both are needed.
        s3: for s3; without keys the requests are anonymous.
        ca: certificates to trust for this source instead of the machine's, PEM.
    """

    username: str = ""
    password: str = field(default="", repr=False)
    ssh_privatekey: str = field(default="", repr=False)
    known_hosts: str = ""
    s3: S3Access = field(default_factory=S3Access)
    ca: Path | None = None

    def basic(self) -> str | None:
        """Return the value of the Authorization header, None without a password."""
        if not self.password:
            return None
        pair = f"{self.username or 'git'}:{self.password}"
        return "Basic " + base64.b64encode(pair.encode()).decode()

    def redactor(self) -> Redactor:
        """Return a redactor that knows every form in which these credentials are used."""
        key = [line for line in self.ssh_privatekey.splitlines() if not line.startswith("---")]
        basic = (self.basic() or "").removeprefix("Basic ")
        return Redactor([self.password, basic, *key, self.s3.secret_access_key, self.s3.session_token])


def load_secret(directory: Path | None) -> Secret:
    """Read the known keys of a mounted Secret; without a directory there are no credentials.

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
        s3=_s3(directory),
        ca=ca if os.path.exists(ca) else None,
    )


def _s3(directory: Path) -> S3Access:
    """Read the keys for S3.

    Raises:
        Refused: only one of the two access keys is there.
    """

    def first(*keys: str) -> str:
        return next((value for key in keys if (value := _read(directory, key).strip())), "")

    access = S3Access(
        access_key_id=first("AWS_ACCESS_KEY_ID"),
        secret_access_key=first("AWS_SECRET_ACCESS_KEY"),
        session_token=first("AWS_SESSION_TOKEN"),
        region=first("AWS_REGION", "AWS_DEFAULT_REGION"),
        endpoint=first("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
        addressing=first("AWS_S3_ADDRESSING_STYLE"),
    )
    if bool(access.access_key_id) != bool(access.secret_access_key):
        raise Refused(
            "the Secret has only one of AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            next_step="Put both into the Secret that secretRef names, or neither for a bucket that anybody may read",
        )
    return access


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
