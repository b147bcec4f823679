"""Runs a kubeconfig's credential plugin, by the protocol of client.authentication.k8s.io.

Source: https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from torchctl.runtime.client.credentials import CredentialsError, Issued
from torchctl.runtime.client.pemfiles import keep

__all__ = ["ExecPlugin"]

TIMEOUT_S = 30.0
INTERACTIVE_TIMEOUT_S = 300.0
"""Seconds for a plugin that may ask a person at the terminal to log in."""


class ExecPlugin:
    """A plugin as the user's entry describes it.

    Args:
        spec: The field `exec`.
        directory: Directory of the kubeconfig; a command with a slash is relative to it.
        cluster: The cluster's entry, for a plugin that wants to know it.
    """

    def __init__(self, spec: Mapping[str, Any], directory: str, cluster: Mapping[str, Any]) -> None:
        self._spec = spec
        self._cluster = cluster
        command = str(spec["command"])
        self._command = os.path.join(directory, command) if "/" in command else command
        self._mode = spec.get("interactiveMode") or "IfAvailable"

    def __repr__(self) -> str:
        return f"<ExecPlugin {self._command}>"

    async def issue(self) -> Issued:
        """Runs the plugin once.

        Raises:
            CredentialsError: It is not installed, fails, takes too long, or answers with something else.
        """
        interactive = self._mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
        if self._mode == "Always" and not interactive:
            raise CredentialsError(f"the plugin {self._command} needs a terminal")
        try:
            return self._issued(await self._run(interactive))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CredentialsError(f"the plugin {self._command} answers with no ExecCredential: {error}") from error

    async def _run(self, interactive: bool) -> bytes:
        # Whoever is asked to log in has to see what the plugin says; else it becomes part of the error.
        sees = interactive and sys.stderr.isatty()
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *map(str, self._spec.get("args") or ()),
                env=self._environment(interactive),
                stdin=None if interactive else asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=None if sees else asyncio.subprocess.PIPE,
            )
        except OSError as error:
            hint = f"; {self._spec['installHint']}" if self._spec.get("installHint") else ""
            raise CredentialsError(f"the plugin {self._command} cannot be run: {error.strerror}{hint}") from error
        try:
            async with asyncio.timeout(INTERACTIVE_TIMEOUT_S if interactive else TIMEOUT_S):
                output, said = await process.communicate()
        except TimeoutError as error:
            raise CredentialsError(f"the plugin {self._command} gave no credentials in time") from error
        finally:
            if process.returncode is None:
                process.kill()
                # asyncio waits for the end of its output too, which a program that it has started may hold open.
                process._transport.close()  # type: ignore[attr-defined]  # no public way closes the pipes
                await process.wait()
        if process.returncode:
            why = (said or b"").decode(errors="replace").strip()
            raise CredentialsError(f"the plugin {self._command} failed with {process.returncode}: {why}".rstrip(": "))
        return output

    def _environment(self, interactive: bool) -> dict[str, str]:
        spec: dict[str, Any] = {"interactive": interactive}
        if self._spec.get("provideClusterInfo"):
            spec["cluster"] = {key: value for key, value in self._cluster.items() if key != "extensions"}
        info = {"apiVersion": self._spec["apiVersion"], "kind": "ExecCredential", "spec": spec}
        own = {str(item["name"]): str(item["value"]) for item in self._spec.get("env") or ()}
        return {**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(info)}

    def _issued(self, output: bytes) -> Issued:
        answer = json.loads(output)
        if answer["apiVersion"] != self._spec["apiVersion"]:
            raise ValueError(f"its apiVersion is {answer['apiVersion']}, not {self._spec['apiVersion']}")
        status = answer["status"]
        token, certificate = status.get("token"), None
        if "clientCertificateData" in status:
            certificate = (keep(status["clientCertificateData"].encode()), keep(status["clientKeyData"].encode()))
        if not token and certificate is None:
            raise ValueError("it has neither a token nor a certificate")
        return Issued(f"Bearer {token}" if token else None, certificate, _remaining_s(status))


def _remaining_s(status: Mapping[str, Any]) -> float | None:
    expiry = status.get("expirationTimestamp")
    return None if not expiry else (datetime.fromisoformat(expiry) - datetime.now(UTC)).total_seconds()
