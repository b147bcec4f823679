"""Git's command lines, environment and refs as values, and the meaning of its errors. Pure."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlunsplit

from .core import show
from .errors import Refused, Unexplained, Unreachable, WorkspaceError
from .urls import FULL_SHA, check_ref, check_url

__all__ = ["GitSource", "NotAdvertised", "choose_ref", "environment", "explain", "ref_patterns", "ssh_command"]

SCHEMES = ("https", "ssh")

_PASSED_ON = ("PATH", "GIT_SSL_CAINFO", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy")

_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.askPass": "",
    "credential.helper": "",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "init.defaultBranch": "main",
    "tar.umask": "0022",
    "http.lowSpeedLimit": "1",
    "http.lowSpeedTime": "60",
}

ATTRIBUTES = "* -export-ignore -export-subst -filter\n"
"""`info/attributes` of the scratch repository: `git archive` must give every file, and run no filter."""


class NotAdvertised(Refused):
    """The server serves only the tips of its refs, so the commit must be searched in the whole history."""


@dataclass(frozen=True)
class GitSource:
    """A repository and a ref in it; an empty ref is the repository's default branch."""

    url: str
    ref: str = ""

    def check(self) -> SplitResult:
        """Check the URL and the ref, and return the parsed URL.

        Raises:
            Refused: the URL's scheme is not https or ssh, it contains credentials, or the ref is invalid.
        """
        if "://" not in self.url and "@" in self.url.partition(":")[0]:
            host, _, path = self.url.partition(":")
            raise Refused(
                f"the URL {show(self.url)} has no scheme", next_step=f"Write ssh://{host}/{path.lstrip('/')} instead"
            )
        split = check_url(self.url, SCHEMES)
        if split.query or split.fragment:
            raise Refused("the URL of a repository has no '?' and no '#'", next_step="Name the branch in ref")
        if self.ref:
            check_ref(self.ref)
        return split


def ref_patterns(ref: str) -> list[str]:
    """Return the refs to look for, best first: a branch wins over a tag of that name, as in `git clone --branch`."""
    if not ref:
        return ["HEAD"]
    if ref.startswith("refs/"):
        return [ref]
    return [f"refs/heads/{ref}", f"refs/tags/{ref}"]


def choose_ref(ref: str, listing: str) -> str | None:
    """Choose the ref to fetch from the lines "<sha> TAB <name>" of `git ls-remote`; None if there is none."""
    names = {line.partition("\t")[2] for line in listing.splitlines()}
    return next((name for name in ref_patterns(ref) if name in names), None)


def is_commit(ref: str) -> bool:
    return FULL_SHA.match(ref) is not None


def ssh_command(key: Path | None, known_hosts: Path) -> str:
    """Return GIT_SSH_COMMAND. Git splits it like a shell, so it contains only our own quoted paths, no user input."""
    options = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "UserKnownHostsFile": str(known_hosts),
        "GlobalKnownHostsFile": "/dev/null",
        "IdentitiesOnly": "yes",
        "IdentityAgent": "none",
        "PreferredAuthentications": "publickey",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "PermitLocalCommand": "no",
        "ProxyCommand": "none",
        "ConnectTimeout": "20",
        "ServerAliveInterval": "15",
        "ServerAliveCountMax": "4",
    }
    argv = ["ssh", "-F", "/dev/null"]
    for name, value in options.items():
        argv += ["-o", f"{name}={value}"]
    return shlex.join([*argv, *(["-i", str(key)] if key else [])])


def environment(
    split: SplitResult, inherited: Mapping[str, str], *, home: Path, basic: str | None, ca: Path | None, ssh: str
) -> dict[str, str]:
    """Return the whole environment of git: no system or user configuration, no prompt, only https and ssh.

    A password is sent as an extra header to this origin only, and is passed in the environment: not in an argument, a
    URL or a file. With a password, redirects are off, because git would send the header to the redirect's target.
    """
    env = {name: inherited[name] for name in (*_PASSED_ON, *_PROXIES) if name in inherited}
    env |= {
        "HOME": str(home),
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": ":".join(SCHEMES),
        "GIT_PROTOCOL_FROM_USER": "0",
        "GIT_SSH_COMMAND": ssh,
        "GIT_SSH_VARIANT": "ssh",
        "GIT_OPTIONAL_LOCKS": "0",
    }
    env.setdefault("PATH", os.defpath)
    bundle = str(ca) if ca else env.get("GIT_SSL_CAINFO") or env.get("SSL_CERT_FILE")
    if bundle:
        env["GIT_SSL_CAINFO"] = bundle
    config = dict(_CONFIG)
    if basic:
        base = urlunsplit((split.scheme, split.netloc, "/", "", ""))
        config[f"http.{base}.extraHeader"] = f"Authorization: {basic}"
        config["http.followRedirects"] = "false"
    env["GIT_CONFIG_COUNT"] = str(len(config))
    for index, (key, value) in enumerate(config.items()):
        env[f"GIT_CONFIG_KEY_{index}"] = key
        env[f"GIT_CONFIG_VALUE_{index}"] = value
    return env


_AWAY = (
    Unreachable,
    "the server cannot be reached",
    "Check the host in volumes.workspace.url and the network policy of the namespace",
)

_MEANINGS: Sequence[tuple[tuple[str, ...], type[WorkspaceError], str, str]] = (
    # Name and connection errors come first, because their texts may contain "not found", "SSL" or "protocol".
    (
        (
            "Could not resolve",
            "Temporary failure in name resolution",
            "Connection refused",
            "Connection reset",
            "Connection timed out",
            "Connection closed",
            "Failed to connect",
            "Couldn't connect",
            "No route to host",
            "Network is unreachable",
            "Empty reply from server",
            "SSL_ERROR_SYSCALL",
            "unexpected eof",
            "non-properly",
            "HTTP code 5",
            "CONNECT tunnel failed, response 5",
            "returned error: 5",
            "returned error: 429",
        ),
        *_AWAY,
    ),
    (
        ("could not read Username", "Authentication failed", "requested URL returned error: 401", "error: 403"),
        Refused,
        "the server refused the credentials",
        "Check the Secret that secretRef names (username and password), and its rights on the repository",
    ),
    (
        ("Permission denied (publickey", "Load key"),
        Refused,
        "the server refused the key",
        "Check ssh-privatekey in the Secret that secretRef names, and the user in the URL (usually git@)",
    ),
    (
        ("No user exists for uid",),
        Refused,
        "ssh takes no user without a name, and the queue's runAsUser has none in the image of torchctl",
        "Leave runAsUser out of the queue's podTemplate, or use https",
    ),
    (
        ("Host key verification failed", "REMOTE HOST IDENTIFICATION HAS CHANGED"),
        Refused,
        "the server's host key is not the known one",
        "Put the output of ssh-keyscan, checked, into known_hosts of the Secret",
    ),
    (
        ("not found", "does not exist", "does not appear to be a git repository", "requested URL returned error: 404"),
        Refused,
        "there is no such repository",
        "Check volumes.workspace.url, and secretRef if the repository is private",
    ),
    (
        ("certificate", "SSL"),
        Refused,
        "the server's certificate is not trusted",
        "Put the authority's certificate as ca.crt into the Secret that secretRef names",
    ),
    (
        ("unable to update url base from redirection", "redirect", "returned error: 30"),
        Refused,
        "the server redirects elsewhere, which is not followed with credentials",
        "Use the URL that it leads to",
    ),
    (
        ("unadvertised object",),
        NotAdvertised,
        "the server gives the tips of branches and tags only",
        "Name a branch or a tag in volumes.workspace.ref",
    ),
    (
        ("not our ref", "couldn't find remote ref"),
        Refused,
        "the commit is not in the repository",
        "Push it, or check volumes.workspace.ref",
    ),
    (
        ("No space left on device", "Disk quota exceeded"),
        Refused,
        "the volume is full",
        "Give volumes.workspace.size more room",
    ),
    (("returned error: 4",), Refused, "the server refused the request", "Check volumes.workspace.url and secretRef"),
    (("transport '", "protocol '"), Refused, "git refused the protocol", "Use https or ssh"),
    (
        ("Operation too slow", "timed out", "early EOF", "unexpected disconnect", "not closed cleanly", "RPC failed"),
        *_AWAY,
    ),
)


def explain(stderr: str, url: str, source: str) -> WorkspaceError:
    """Return the error for a failed git command, based on its stderr.

    Args:
        stderr: the output of git, already redacted.
        url: the URL that git was given; its words are ignored in stderr.
        source: the URL and ref as shown to people.
    """
    said = next((line for line in stderr.splitlines() if line.strip()), "git said nothing")[:300]
    signs_in = stderr.replace(url, "").replace(url.rstrip("/") + "/", "")
    for signs, kind, meaning, next_step in _MEANINGS:
        if any(sign in signs_in for sign in signs):
            return kind(f"cannot fetch {source}: {meaning} ({said})", next_step=next_step)
    return Unexplained(f"cannot fetch {source} ({said})", next_step="Check volumes.workspace.url and ref")
