"""The environment's proxies, by the rules of Go's httpproxy."""

import pytest

from torchctl.runtime.client.proxies import proxy_for

API = "https://10.0.0.1:6443"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy:3128"}, "http://proxy:3128"),
        ({"https_proxy": "http://small:1", "HTTPS_PROXY": "http://large:1"}, "http://small:1"),
        ({"HTTPS_PROXY": "proxy:3128"}, "http://proxy:3128"),
        ({"HTTP_PROXY": "http://proxy:3128"}, None),
        ({"HTTPS_PROXY": ""}, None),
    ],
)
def test_the_scheme_chooses_the_variable(environment: dict[str, str], expected: str | None) -> None:
    assert proxy_for(API, environment) == expected


@pytest.mark.parametrize(
    ("url", "no_proxy", "exempt"),
    [
        (API, "*", True),
        (API, "10.0.0.1", True),
        (API, "10.0.0.0/8", True),
        (API, "10.0.0.1:6443", True),
        (API, "10.0.0.1:443", False),
        (API, "192.168.0.0/16, 10.0.0.2", False),
        (API, "nonsense/8", False),
        ("https://[fd00::1]:6443", "fd00::/8", True),
        ("https://[fd00::1]:6443", "[fd00::1]:6443", True),
        ("https://api.example.com", "example.com", True),
        ("https://api.example.com", ".example.com", True),
        ("https://api.example.com", "*.example.com", True),
        ("https://example.com", ".example.com", False),
        ("https://badexample.com", "example.com", False),
        ("https://api.example.com", "EXAMPLE.com:443", True),
    ],
)
def test_no_proxy_exempts(url: str, no_proxy: str, exempt: bool) -> None:
    proxy = proxy_for(url, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": no_proxy})
    assert (proxy is None) is exempt


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.8.8", "[::1]"])
def test_loopback_is_never_proxied(host: str) -> None:
    assert proxy_for(f"https://{host}:6443", {"HTTPS_PROXY": "http://proxy:3128"}) is None
