"""How to reach one API server, and as whom: what a kubeconfig or a service account comes to."""

from dataclasses import dataclass, field, replace

from torchctl.runtime.client.credentials import Credentials, StaticCredentials
from torchctl.runtime.client.tls import TlsFiles

__all__ = ["ConfigError", "Connection"]


class ConfigError(Exception):
    """No usable configuration. The message says what was looked for; the person who runs the program can mend it."""


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one API server.

    Attributes:
        host: URL without a trailing slash.
        tls: Certificates.
        proxy: URL of the proxy that the kubeconfig names; None leaves it to the environment.
        namespace: Where things go that name no namespace.
        credentials: Who we are.
    """

    host: str
    tls: TlsFiles = field(default_factory=TlsFiles)
    proxy: str | None = None
    namespace: str = "default"
    credentials: Credentials = field(default_factory=StaticCredentials)

    async def authorization(self, force: bool = False) -> str | None:
        """The Authorization header of the moment; `force` after the server refused it."""
        return await self.credentials.authorization(force)

    def tls_files(self) -> TlsFiles:
        """The certificates of the moment: a credential plugin may issue them."""
        if self.credentials.certificate is None:
            return self.tls
        certificate, key = self.credentials.certificate
        return replace(self.tls, certificate=certificate, key=key)
