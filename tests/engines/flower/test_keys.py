"""Certificates and keys of a trial: what is written verifies, holds for its hosts only, and stays secret."""

import ssl
import stat
import threading
from contextlib import closing
from socket import create_server, socket

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key, load_ssh_public_key

from privfed.engines.flower.__main__ import main
from privfed.engines.flower.keys import KeysError, TrialKeys, make_keys, node_keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("trial"), ["alpha", "beta"], ["127.0.0.1", "localhost"])


def _shake_hands(keys, authority, host):
    """One TLS handshake with the server's certificate, as a client that trusts `authority`."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(keys.certificate, keys.key)
    asking = ssl.create_default_context(cafile=str(authority))
    with create_server(("127.0.0.1", 0)) as listener:

        def serve():
            connection, _ = listener.accept()
            with closing(connection), pytest.MonkeyPatch.context():
                try:
                    serving.wrap_socket(connection, server_side=True).close()
                except (ssl.SSLError, OSError):
                    return

        server = threading.Thread(target=serve)
        server.start()
        try:
            with socket() as plain:
                plain.settimeout(10)
                plain.connect(listener.getsockname())
                with asking.wrap_socket(plain, server_hostname=host) as secure:
                    return secure.version()
        finally:
            server.join()


def test_the_server_certificate_verifies_under_its_authority(keys):
    assert _shake_hands(keys, keys.authority, "127.0.0.1") == "TLSv1.3"
    assert _shake_hands(keys, keys.authority, "localhost") == "TLSv1.3"


def test_another_host_or_authority_is_refused(keys, tmp_path):
    other = make_keys(tmp_path / "other", ["alpha"])
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(keys, keys.authority, "example.org")
    with pytest.raises(ssl.SSLCertVerificationError):
        _shake_hands(keys, other.authority, "127.0.0.1")


def test_certificates_say_what_they_are_for(keys):
    authority, server = (x509.load_pem_x509_certificate(p.read_bytes()) for p in (keys.authority, keys.certificate))
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert (server.not_valid_after_utc - server.not_valid_before_utc).days == 30


def test_node_keys_are_pairs_of_a_curve_that_flower_takes(keys):
    assert keys.names == ["alpha", "beta"]
    for name in keys.names:
        private = load_ssh_private_key(keys.private(name).read_bytes(), None)
        public = load_ssh_public_key(keys.public(name).read_bytes())
        assert isinstance(private, ec.EllipticCurvePrivateKey)
        assert isinstance(private.curve, ec.SECP384R1)
        assert private.public_key() == public
    assert keys.public("alpha").read_bytes() != keys.public("beta").read_bytes()


def test_secrets_are_readable_by_their_owner_only(keys):
    secret = list(keys.folder.rglob("*.key"))
    assert len(secret) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}


def test_nothing_is_overwritten(keys):
    before = keys.private("alpha").read_bytes()
    with pytest.raises(KeysError, match="is not empty"):
        make_keys(keys.folder, ["alpha"])
    with pytest.raises(KeysError, match="holds a node key already"):
        node_keys(keys.node("alpha"))
    assert keys.private("alpha").read_bytes() == before


@pytest.mark.parametrize(
    ("names", "hosts", "says"),
    [
        (["../alpha"], ["localhost"], "cannot name a node"),
        (["alpha", "alpha"], ["localhost"], "two share a name"),
        ([], ["localhost"], "at least one host"),
        (["alpha"], [], "at least one host"),
    ],
)
def test_bad_names_are_refused_before_anything_is_written(tmp_path, names, hosts, says):
    with pytest.raises(KeysError, match=says):
        make_keys(tmp_path / "new", names, hosts)
    assert not (tmp_path / "new").exists()


def test_the_command_makes_keys_and_answers_mistakes_in_a_sentence(tmp_path, capsys):
    assert main(["keys", str(tmp_path / "trial"), "--nodes", "alpha", "beta"]) == 0
    assert TrialKeys(tmp_path / "trial").names == ["alpha", "beta"]
    assert main(["node-key", str(tmp_path / "gamma")]) == 0
    capsys.readouterr()
    assert main(["keys", str(tmp_path / "trial"), "--nodes", "alpha"]) == 2
    assert "is not empty" in capsys.readouterr().err
