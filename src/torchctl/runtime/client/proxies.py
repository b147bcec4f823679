"""Selects the proxy for a URL from environment variables, by the rules that Go programs follow. Pure.

HTTPS_PROXY, HTTP_PROXY and NO_PROXY, in capitals or small letters (small letters first, as curl has it). NO_PROXY
holds hosts, domains, addresses, CIDR ranges, each with a port if wanted, or `*`. Loopback is never proxied.
Source of the rules: golang.org/x/net/http/httpproxy.
"""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from torchctl.runtime.client.connection import ConfigError

__all__ = ["proxy_for", "supported"]

Address = IPv4Address | IPv6Address


def proxy_for(url: str, environment: Mapping[str, str]) -> str | None:
    """Returns the proxy's URL, None to connect directly."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    proxy = _variable(environment, f"{parts.scheme}_proxy")
    if not proxy or _is_loopback(host) or _is_exempt(host, port, _variable(environment, "no_proxy")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def supported(proxy: str | None) -> None:
    """Checks a proxy's URL.

    Raises:
        ConfigError: It is of a kind that is not spoken here, such as SOCKS5.
    """
    scheme = urlsplit(proxy or "").scheme
    if scheme not in ("", "http", "https"):
        raise ConfigError(f"a proxy by {scheme} is not supported: use an HTTP proxy, or unset it for this cluster")


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _is_exempt(host: str, port: int, no_proxy: str) -> bool:
    return any(_matches(entry.strip().lower(), host, port) for entry in no_proxy.split(",") if entry.strip())


def _matches(entry: str, host: str, port: int) -> bool:
    if entry == "*":
        return True
    address = _address(host)
    if "/" in entry:
        return address is not None and _in_range(address, entry)
    name, entry_port = _split_port(entry)
    if entry_port and entry_port != str(port):
        return False
    if address is not None:
        return _address(name) == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _split_port(entry: str) -> tuple[str, str]:
    if _address(entry) is not None:
        return entry, ""
    name, _, port = entry.rpartition(":") if ":" in entry else (entry, "", "")
    return name.strip("[]"), port


def _in_range(address: Address, entry: str) -> bool:
    try:
        return address in ip_network(entry, strict=False)
    except ValueError:
        return False


def _address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
