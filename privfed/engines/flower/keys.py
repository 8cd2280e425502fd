"""Certificates and keys of a trial federation: one authority, one server certificate, one key pair for each node.

    trial/ca.crt  ca.key                    an authority of its own, which nodes trust and nobody else does
    trial/server.crt  server.key            what the SuperLink shows: TLS for the hosts it was made for
    trial/nodes/<name>/node.key  node.pub   what a node proves itself with (P-384, signed timestamps: Flower's own rule)

A node needs `ca.crt` and its own folder; nothing else of this may reach it. For more than a trial, take the server's
certificate from the authority your organisations already trust, and let every organisation make its own node key and
send you the public half: `node_keys` is that one step.

Sources: RFC 5280 (certificates), RFC 8446 (TLS 1.3), OpenSSH's key format as `flwr supernode register` reads it.
"""

import datetime
import ipaddress
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAYS = 30
"""How long a trial's certificates hold."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_SKEW = datetime.timedelta(minutes=5)


class KeysError(ValueError):
    """Keys cannot be made as asked."""


@dataclass(frozen=True, slots=True)
class TrialKeys:
    """Where the files of a trial lie.

    Attributes:
        folder: of all of them.
    """

    folder: Path

    @property
    def authority(self) -> Path:
        """Certificate that nodes and users of `flwr` verify the server with."""
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """The server's certificate."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        """The server's private key."""
        return self.folder / "server.key"

    def node(self, name: str) -> Path:
        """A node's own folder."""
        return self.folder / "nodes" / name

    def private(self, name: str) -> Path:
        """A node's private key, which never leaves the node."""
        return self.node(name) / "node.key"

    def public(self, name: str) -> Path:
        """A node's public key, which the operator of the SuperLink registers."""
        return self.node(name) / "node.pub"

    @property
    def names(self) -> list[str]:
        """Nodes that have a key pair here, in order."""
        return sorted(path.parent.name for path in self.folder.glob("nodes/*/node.key"))


def make_keys(folder: Path, names: Sequence[str], hosts: Sequence[str] = ("127.0.0.1", "localhost")) -> TrialKeys:
    """Make everything that a trial needs; nothing that exists is overwritten.

    Args:
        folder: new or empty.
        names: of the nodes: lower-case letters, digits, `-` and `_`.
        hosts: addresses and names under which nodes reach the server.

    Raises:
        KeysError: the folder holds files, a name cannot name a folder, or there is no host or node.
    """
    if folder.exists() and any(folder.iterdir()):
        raise KeysError(f"{folder} is not empty, and keys are never overwritten: name a new folder")
    if not hosts or not names:
        raise KeysError("a trial needs at least one host of the server and one node: name them")
    if wrong := [name for name in names if not _NAME.fullmatch(name)]:
        raise KeysError(f"{wrong[0]!r} cannot name a node: use lower-case letters, digits, - and _")
    if len(set(names)) < len(names):
        raise KeysError(f"nodes are named {', '.join(names)}, and two share a name: name each once")
    keys = TrialKeys(folder)
    authority_key, server_key = (ec.generate_private_key(ec.SECP384R1()) for _ in range(2))
    authority = _certificate("privfed trial authority", authority_key.public_key(), authority_key, None, ())
    server = _certificate("privfed trial server", server_key.public_key(), authority_key, authority, hosts)
    _write_secret(folder / "ca.key", _pem(authority_key))
    keys.authority.write_bytes(authority.public_bytes(Encoding.PEM))
    _write_secret(keys.key, _pem(server_key))
    keys.certificate.write_bytes(server.public_bytes(Encoding.PEM))
    for name in names:
        node_keys(keys.node(name))
    return keys


def node_keys(folder: Path) -> Path:
    """Make a node's key pair, `node.key` and `node.pub`, in `folder`; returns the public half.

    Raises:
        KeysError: there is a key already.
    """
    if (folder / "node.key").exists():
        raise KeysError(f"{folder} holds a node key already, and keys are never overwritten: name a new folder")
    private = ec.generate_private_key(ec.SECP384R1())
    _write_secret(folder / "node.key", private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = folder / "node.pub"
    public.write_bytes(private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH) + b"\n")
    return public


def _certificate(
    subject: str,
    public: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    hosts: Sequence[str],
) -> x509.Certificate:
    """A certificate of the authority (no issuer) or, signed by it, of a server reached as `hosts`."""
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]), datetime.datetime.now(datetime.UTC)
    is_authority = issuer is None
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(
            x509.KeyUsage(
                digital_signature=not is_authority,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=is_authority,
                crl_sign=is_authority,
                encipher_only=False,
                decipher_only=False,
            ),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if not is_authority:
        built = built.add_extension(x509.SubjectAlternativeName([_host(h) for h in hosts]), critical=False)
        built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return built.sign(issuer_key, hashes.SHA384())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write_secret(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
