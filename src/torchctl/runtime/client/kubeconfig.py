"""Connections from kubeconfig files, as kubectl makes them."""

import base64
import binascii
import os
import re
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from torchctl.runtime.client import authprovider
from torchctl.runtime.client.connection import ConfigError, Connection
from torchctl.runtime.client.contexts import Context, Entry, File, find
from torchctl.runtime.client.credentials import (
    Credentials,
    CredentialsError,
    Issued,
    PluginCredentials,
    StaticCredentials,
    TokenFile,
)
from torchctl.runtime.client.execplugin import ExecPlugin
from torchctl.runtime.client.impersonation import Impersonation
from torchctl.runtime.client.pemfiles import keep
from torchctl.runtime.client.tls import TlsFiles

__all__ = ["load"]


async def load(paths: str, context: str | None = None) -> Connection:
    """Reads a kubeconfig, or several joined by colons and merged as kubectl merges them.

    Raises:
        ConfigError: None of the files exists, their content is invalid, or there are no credentials; in this case its
            cause is a CredentialsError.
    """
    existing = _existing(paths)
    if not existing:
        raise ConfigError(_missing(paths))
    try:
        files = [File(str(Path(path).parent.absolute()), _read(path)) for path in existing]
        found = find(files, context)
        return await _connection(found, os.pathsep.join(existing))
    except CredentialsError as error:
        raise ConfigError(f"{paths}: {error}") from error
    except (AttributeError, KeyError, TypeError, ValueError, OSError, yaml.YAMLError) as error:
        # What a file of another shape, or a value of another type, leads to.
        raise ConfigError(f"{paths}: no usable kubeconfig: {_reason(error)}") from error


async def _connection(context: Context, paths: str) -> Connection:
    cluster, user = context.cluster, context.user
    host = cluster.fields["server"].rstrip("/")
    if not re.match("https?://[^/ ]", host):
        raise ValueError(f"server: {host!r} is no URL, such as https://host:6443")
    return Connection(
        host=host,
        tls=_tls(cluster, user) if host.startswith("https:") else TlsFiles(),
        proxy=cluster.fields.get("proxy-url") or None,
        namespace=context.namespace,
        credentials=await _credentials(context, paths),
        impersonation=_impersonation(user.fields),
    )


async def _credentials(context: Context, paths: str) -> Credentials:
    user = context.user.fields
    if "exec" in user:
        return await _asked(ExecPlugin(user["exec"], context.user.directory, context.cluster.fields).issue)
    if "auth-provider" in user:
        return await _asked(partial(authprovider.issue, paths, context.name))
    if user.get("token"):
        return StaticCredentials(f"Bearer {user['token']}")
    if user.get("tokenFile"):
        return TokenFile(os.path.join(context.user.directory, user["tokenFile"]))
    if "username" in user and "password" in user:
        secret = base64.b64encode(f"{user['username']}:{user['password']}".encode()).decode()
        return StaticCredentials(f"Basic {secret}")
    return StaticCredentials()


async def _asked(issue: Callable[[], Awaitable[Issued]]) -> Credentials:
    return PluginCredentials(issue, await issue())


def _tls(cluster: Entry, user: Entry) -> TlsFiles:
    return TlsFiles(
        ca=_file(cluster, "certificate-authority"),
        certificate=_file(user, "client-certificate"),
        key=_file(user, "client-key"),
        verify=not cluster.fields.get("insecure-skip-tls-verify"),
        server_name=cluster.fields.get("tls-server-name") or None,
    )


def _file(entry: Entry, name: str) -> str | None:
    """Returns the path of a file that an entry names, or whose content it has; None for neither."""
    data = entry.fields.get(f"{name}-data")
    if data:
        try:
            return keep(base64.b64decode(data, validate=True))
        except binascii.Error as error:
            raise ValueError(f"{name}-data is not in base64") from error
    if not entry.fields.get(name):
        return None
    path = os.path.join(entry.directory, entry.fields[name])
    if not os.path.isfile(path):
        raise ValueError(f"{name}: there is no file {path}")
    return os.path.normpath(path)


def _impersonation(user: Any) -> Impersonation | None:
    """Returns the user that the kubeconfig's user impersonates, if any."""
    if not any(user.get(key) for key in ("as", "as-uid", "as-groups", "as-user-extra")):
        return None
    extra = user.get("as-user-extra") or {}
    return Impersonation(
        user=user.get("as") or "",
        groups=tuple(user.get("as-groups") or ()),
        uid=user.get("as-uid") or "",
        extra={key: tuple(values) for key, values in extra.items()},
    )


def _existing(paths: str) -> list[str]:
    return [path for path in map(os.path.expanduser, paths.split(os.pathsep)) if os.path.isfile(path)]


def _missing(paths: str) -> str:
    directories = [path for path in map(os.path.expanduser, paths.split(os.pathsep)) if os.path.isdir(path)]
    if directories:
        return f"{directories[0]} is a directory, and a kubeconfig is a file: name the file in it"
    return f"there is no kubeconfig at {paths}"


def _read(path: str) -> Any:
    with open(path, "rb") as file:
        return yaml.load(file, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _reason(error: Exception) -> str:
    return str(error) if type(error) in (ValueError, OSError) else f"{type(error).__name__}: {error}"
