"""What a server shows over TLS, and what it makes of pairs that come, change and break."""

import ssl
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from torchctl.runtime.certificates import CHECK_PERIOD_S, Certificates
from torchctl.testing.certificates import Authority, Pair
from torchctl.testing.clock import ManualClock


def write(directory: Path, pair: Pair) -> None:
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)


def shown(context: ssl.SSLContext) -> bytes:
    """The certificate that a client of this context gets, DER."""
    server_in, server_out, client_in, client_out = (ssl.MemoryBIO() for _ in range(4))
    server = context.wrap_bio(server_in, server_out, server_side=True)
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    client = anybody.wrap_bio(client_in, client_out)
    for _ in range(4):
        for side in (client, server):
            with suppress(ssl.SSLWantReadError):
                side.do_handshake()
            server_in.write(client_out.read())
            client_in.write(server_out.read())
    certificate = client.getpeercert(binary_form=True)
    assert certificate
    return certificate


def der(pair: Pair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


def test_certificate_of_the_directory_is_used_and_reloaded(tmp_path: Path) -> None:
    authority, clock = Authority(), ManualClock()
    first, second = authority.server(["metrics"]), authority.server(["metrics"])
    certificates = Certificates(str(tmp_path), clock)
    write(tmp_path, first)
    assert shown(certificates.current()) == der(first)
    write(tmp_path, second)
    assert shown(certificates.current()) == der(first)
    clock.seconds += CHECK_PERIOD_S
    assert shown(certificates.current()) == der(second)


def test_without_a_directory_one_self_signed_certificate_is_kept() -> None:
    certificates = Certificates(None, ManualClock())
    own = shown(certificates.current())
    assert shown(certificates.current()) == own
    assert shown(Certificates(None, ManualClock()).current()) != own


def test_empty_directory_means_self_signed_until_a_pair_appears(tmp_path: Path) -> None:
    clock, pair = ManualClock(), Authority().server(["metrics"])
    certificates = Certificates(str(tmp_path / "missing"), clock)
    with capture_logs() as lines:
        own = shown(certificates.current())
        clock.seconds += CHECK_PERIOD_S
        assert shown(certificates.current()) == own
    assert [line["instead"] for line in lines] == ["a self-signed one"]
    (tmp_path / "missing").mkdir()
    write(tmp_path / "missing", pair)
    clock.seconds += CHECK_PERIOD_S
    assert shown(certificates.current()) == der(pair)


@pytest.mark.parametrize("broken", ["half", "other key", "gone", "no PEM"])
def test_a_pair_that_breaks_leaves_the_one_before(tmp_path: Path, broken: str) -> None:
    authority, clock = Authority(), ManualClock()
    good, other = authority.server(["metrics"]), authority.server(["metrics"])
    certificates = Certificates(str(tmp_path), clock)
    write(tmp_path, good)
    assert shown(certificates.current()) == der(good)
    match broken:
        case "half":
            (tmp_path / "tls.crt").write_bytes(other.certificate)
        case "other key":
            (tmp_path / "tls.key").write_bytes(other.key)
        case "gone":
            (tmp_path / "tls.key").unlink()
        case _:
            write(tmp_path, Pair(b"?", b"?"))
    clock.seconds += CHECK_PERIOD_S
    with capture_logs() as lines:
        assert shown(certificates.current()) == der(good)
    assert [line["instead"] for line in lines] == ["the one before"]
    write(tmp_path, other)
    clock.seconds += CHECK_PERIOD_S
    assert shown(certificates.current()) == der(other)


def test_key_with_a_password_is_refused_without_a_prompt(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    pair = Authority().server(["metrics"])
    key = serialization.load_pem_private_key(pair.key, None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    write(tmp_path, Pair(pair.certificate, locked))
    assert shown(Certificates(str(tmp_path), ManualClock()).current()) != der(pair)
