"""The address and credentials of one API server, as read from a kubeconfig or a service account."""

from dataclasses import dataclass, field, replace

from torchctl.runtime.client.credentials import Credentials, StaticCredentials
from torchctl.runtime.client.impersonation import Impersonation
from torchctl.runtime.client.tls import TlsFiles

__all__ = ["ConfigError", "Connection"]


class ConfigError(Exception):
    """No usable configuration was found. The message says where; the person who runs the program can fix it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The address, TLS files and credentials of one API server.

    Attributes:
        host: URL without a trailing slash.
        tls: The certificate files.
        proxy: URL of the proxy that the kubeconfig names; None leaves it to the environment.
        namespace: The default namespace.
        credentials: The source of the Authorization header.
        impersonation: The user in whose name requests are sent; None sends them as who the credentials are.
    """

    host: str
    tls: TlsFiles = field(default_factory=TlsFiles)
    proxy: str | None = None
    namespace: str = "default"
    credentials: Credentials = field(default_factory=StaticCredentials)
    impersonation: Impersonation | None = None

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers of every request, besides Authorization; one that repeats is there several times."""
        return self.impersonation.headers if self.impersonation is not None else ()

    async def authorization(self, force: bool = False) -> str | None:
        """Returns the current Authorization header; `force` fetches a new one after the server refused the last."""
        return await self.credentials.authorization(force)

    def tls_files(self) -> TlsFiles:
        """Returns the current certificate files, which a credential plugin may have issued."""
        if self.credentials.certificate is None:
            return self.tls
        certificate, key = self.credentials.certificate
        return replace(self.tls, certificate=certificate, key=key)
