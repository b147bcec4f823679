"""A certificate authority for tests, so that TLS under test is real TLS."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["Authority", "Pair", "signing_key"]

_LIFETIME = datetime.timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """Issues certificates for servers and clients."""

    def __init__(self, name: str = "torchctl-testing", *, identified: bool = True) -> None:
        self._name = name
        self._identified = identified
        self._key = _new_key()
        self._certificate = self._sign(_subject(name), self._key, authority=True)

    @property
    def certificate(self) -> bytes:
        """The CA certificate, PEM."""
        return _pem(self._certificate)

    @property
    def pair(self) -> Pair:
        return Pair(self.certificate, _key_pem(self._key))

    def server(self, names: Sequence[str]) -> Pair:
        """Issues a serving certificate for host names and IP addresses."""
        key = _new_key()
        return Pair(_pem(self._sign(_subject(names[0]), key, names=names)), _key_pem(key))

    def client(self, user: str, groups: Sequence[str] = ()) -> Pair:
        """Issues a client certificate that Kubernetes accepts as this user in these groups."""
        key = _new_key()
        return Pair(_pem(self._sign(_subject(user, groups), key)), _key_pem(key))

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        names: Sequence[str] = (),
        authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        issuer_key = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(_subject(self._name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + _LIFETIME)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(_usage(authority), critical=True)
        )
        if self._identified:
            identifiers = (
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()),
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_key),
            )
            for identifier in identifiers:
                builder = builder.add_extension(identifier, critical=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(_alternatives(names)), critical=False)
        if not authority:
            role = ExtendedKeyUsageOID.SERVER_AUTH if names else ExtendedKeyUsageOID.CLIENT_AUTH
            builder = builder.add_extension(x509.ExtendedKeyUsage([role]), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def signing_key() -> Pair:
    """Makes a key pair for service account tokens; `certificate` is the public key."""
    key = _new_key()
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return Pair(public, _key_pem(key))


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _subject(name: str, groups: Sequence[str] = ()) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(names: Sequence[str]) -> list[x509.GeneralName]:
    def general(name: str) -> x509.GeneralName:
        try:
            return x509.IPAddress(ipaddress.ip_address(name))
        except ValueError:
            return x509.DNSName(name)

    return [general(name) for name in dict.fromkeys(names)]


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
