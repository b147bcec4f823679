"""The authority's certificates work for real TLS: names are checked, and clients are known by name."""

import ssl
from pathlib import Path

import pytest

from torchctl.testing.certificates import Authority, Pair, signing_key


def _context(purpose: ssl.Purpose, ca: bytes, pair: Pair | None, directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(purpose, cadata=ca.decode())
    if pair is not None:
        path = directory / "pair.pem"
        path.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(path)
    return context


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Runs a handshake in memory and returns the server's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return far


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_server_is_trusted_under_its_names(authority: Authority, name: str, tmp_path: Path) -> None:
    pair = authority.server(["localhost", "127.0.0.1"])
    server = _context(ssl.Purpose.CLIENT_AUTH, authority.certificate, pair, tmp_path)
    client = _context(ssl.Purpose.SERVER_AUTH, authority.certificate, None, tmp_path)
    assert _handshake(client, server, name).version() == "TLSv1.3"


def test_a_server_is_refused_under_another_name(authority: Authority, tmp_path: Path) -> None:
    server = _context(ssl.Purpose.CLIENT_AUTH, authority.certificate, authority.server(["localhost"]), tmp_path)
    client = _context(ssl.Purpose.SERVER_AUTH, authority.certificate, None, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _handshake(client, server, "elsewhere.example")


def test_another_authority_of_the_same_name_is_not_trusted(authority: Authority, tmp_path: Path) -> None:
    server = _context(ssl.Purpose.CLIENT_AUTH, authority.certificate, authority.server(["localhost"]), tmp_path)
    client = _context(ssl.Purpose.SERVER_AUTH, Authority().certificate, None, tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError):
        _handshake(client, server, "localhost")


def test_a_client_certificate_carries_user_and_groups(authority: Authority, tmp_path: Path) -> None:
    server = _context(ssl.Purpose.CLIENT_AUTH, authority.certificate, authority.server(["localhost"]), tmp_path)
    server.verify_mode = ssl.CERT_REQUIRED
    client = _context(ssl.Purpose.SERVER_AUTH, authority.certificate, authority.client("ada", ["dev", "ops"]), tmp_path)
    certificate = _handshake(client, server, "localhost").getpeercert()
    assert certificate is not None
    assert certificate["subject"] == (
        (("organizationName", "dev"),),
        (("organizationName", "ops"),),
        (("commonName", "ada"),),
    )


def test_a_signing_key_comes_as_two_halves() -> None:
    pair = signing_key()
    assert pair.certificate.startswith(b"-----BEGIN PUBLIC KEY")
    assert pair.key.startswith(b"-----BEGIN PRIVATE KEY")
