"""Connections from kubeconfig files. The only module that imports kubernetes_asyncio, and only when it is used."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from torchctl.runtime.client.connection import ConfigError, Connection
from torchctl.runtime.client.credentials import (
    Credentials,
    CredentialsError,
    Issued,
    PluginCredentials,
    StaticCredentials,
    TokenFile,
)
from torchctl.runtime.client.impersonation import Impersonation
from torchctl.runtime.client.tls import TlsFiles

__all__ = ["load"]

PLUGIN_TIMEOUT_S = 30.0
PROVIDER_PERIOD_S = 120.0
"""Seconds between calls of the older auth providers (oidc, gcp), which track the expiry of their token themselves."""


async def load(paths: str, context: str | None = None) -> Connection:
    """Reads a kubeconfig, or several joined by colons and merged as kubectl merges them.

    Raises:
        ConfigError: None of the files exists, or their content is invalid.
    """
    from kubernetes_asyncio.config import ConfigException
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

    if not _exists(paths):
        raise ConfigError(f"there is no kubeconfig at {paths}")
    try:
        merged = KubeConfigMerger(paths).config
        loader = KubeConfigLoader(config_dict=merged, active_context=context, config_base_path=None)
        return await _Kubeconfig(loader, merged).connection()
    except (ConfigException, CredentialsError) as error:
        raise ConfigError(f"{paths}: {error}") from error
    except (AssertionError, AttributeError, KeyError, TypeError, ValueError, OSError, yaml.YAMLError) as error:
        # The errors that the loader raises if a file is no kubeconfig.
        raise ConfigError(f"{paths}: no usable kubeconfig: {type(error).__name__}: {error}") from error


class _Kubeconfig:
    """One context of a merged kubeconfig."""

    def __init__(self, loader: Any, merged: Any) -> None:
        self._loader = loader
        self._context: dict[str, Any] = loader.current_context["context"]
        self._user, self._directory = _find_user(merged, self._context.get("user", ""))

    async def connection(self) -> Connection:
        issued, settings = await self._ask()
        is_tls = settings.host.startswith("https:")
        return Connection(
            host=settings.host.rstrip("/"),
            tls=TlsFiles(
                ca=settings.ssl_ca_cert or None,
                certificate=settings.cert_file or None,
                key=settings.key_file or None,
                verify=settings.verify_ssl is not False,
                server_name=settings.tls_server_name or None,
            )
            if is_tls
            else TlsFiles(),
            proxy=settings.proxy or None,
            namespace=self._context.get("namespace") or "default",
            credentials=self._credentials(issued),
            impersonation=_impersonation(self._user),
        )

    def _credentials(self, issued: Issued) -> Credentials:
        if "exec" in self._user or "auth-provider" in self._user:
            return PluginCredentials(self._fetch, issued)
        if "tokenFile" in self._user and "token" not in self._user:
            return TokenFile(str(self._directory / self._user["tokenFile"]))
        return StaticCredentials(issued.authorization)

    async def _fetch(self) -> Issued:
        try:
            issued, _ = await self._ask()
        except Exception as error:  # plugins and the loader may raise anything
            raise CredentialsError(f"the kubeconfig's credentials could not be renewed: {error}") from error
        return issued

    async def _ask(self) -> tuple[Issued, Any]:
        from kubernetes_asyncio.client import Configuration

        settings = Configuration()
        # The loader caches a plugin's answer until five minutes before its expiry, and for ever if that is unknown.
        vars(self._loader).pop("exec_plugin_expiry", None)
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT_S):
                await self._loader.load_and_set(settings)
        except TimeoutError as error:
            raise CredentialsError(f"no credentials within {PLUGIN_TIMEOUT_S:g} s") from error
        certificate = (settings.cert_file, settings.key_file) if settings.cert_file and "exec" in self._user else None
        return Issued(settings.api_key.get("BearerToken"), certificate, self._remaining_s()), settings

    def _remaining_s(self) -> float | None:
        if "auth-provider" in self._user:
            return PROVIDER_PERIOD_S
        expiry: datetime | None = getattr(self._loader, "exec_plugin_expiry", None)
        return None if expiry is None else (expiry - datetime.now(UTC)).total_seconds()


def _exists(paths: str) -> bool:
    return any(os.path.isfile(os.path.expanduser(path)) for path in paths.split(os.pathsep))


def _impersonation(user: dict[str, Any]) -> Impersonation | None:
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


def _find_user(merged: Any, name: str) -> tuple[dict[str, Any], Path]:
    """Returns the user's entry, and the directory that its paths are relative to."""
    node = merged["users"].get_with_name(name, safe=True) if name and "users" in merged else None
    if node is None or not node.safe_get("user"):
        return {}, Path()
    return dict(node["user"].value), Path(node.path or "").parent.absolute()
