"""Published test vectors, through this library's wrappers where those can take them, and frozen vectors of its own."""

from hashlib import sha256

import numpy as np
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from secure_agg.errors import KeyRefused, SharesRefused, SignatureRefused
from secure_agg.primitives import keys, prg
from secure_agg.primitives.keys import Aead, Identity, KeyPair, derive, seal, unseal, verify
from secure_agg.primitives.prg import StreamCipher, add_keystreams, keystream, random_uints


def h(digits):
    return bytes.fromhex(digits)


def run(first, last):
    return bytes(range(first, last + 1))


RFC_7748_5_2 = [
    (
        "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
        "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
        "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
    ),
    (
        "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
        "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
        "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
    ),
]

P25519 = 2**255 - 19
ORDER_EIGHT = (
    h("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
    h("5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157"),
)
LOW_ORDER = {
    "0": 0,
    "1": 1,
    "order 8": int.from_bytes(ORDER_EIGHT[0], "little"),
    "order 8 too": int.from_bytes(ORDER_EIGHT[1], "little"),
    "p - 1": P25519 - 1,
    "p": P25519,
    "p + 1": P25519 + 1,
}

RFC_5869 = {
    "A.1": (
        b"\x0b" * 22,
        run(0x00, 0x0C),
        run(0xF0, 0xF9),
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    "A.2": (
        run(0x00, 0x4F),
        run(0x60, 0xAF),
        run(0xB0, 0xFF),
        "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
        "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87",
    ),
    "A.3": (
        b"\x0b" * 22,
        b"",
        b"",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
}

SUNSCREEN = (
    b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
    b"sunscreen would be it."
)

SP_800_38A_PLAIN = h(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
SP_800_38A_COUNTER = int.from_bytes(run(0xF0, 0xFF), "big")
SP_800_38A = {
    StreamCipher.AES128: (
        "2b7e151628aed2a6abf7158809cf4f3c",
        "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff"
        "5ae4df3edbd5d35e5b4f09020db03eab1e031dda2fbe03d1792170a0f3009cee",
    ),
    StreamCipher.AES256: (
        "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4",
        "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
        "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6",
    ),
}

RFC_8032_7_1 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c"
        "387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc659"
        "4a7c15e9716ed28dc027beceea1ec40a",
    ),
]

GCM_KEY = h("feffe9928665731c6d6a8f9467308308" * 2)
GCM_NONCE = h("cafebabefacedbaddecaf888")
GCM_PLAIN = h(
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
    "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255"
)
GCM_CIPHER = h(
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa"
    "8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad"
)


@pytest.mark.parametrize(("scalar", "point", "product"), RFC_7748_5_2)
def test_rfc_7748_5_2_x25519(scalar, point, product):
    assert KeyPair.from_private(h(scalar)).agree(h(point)) == h(product)


def test_rfc_7748_5_2_x25519_iterated():
    scalar = point = b"\x09" + bytes(31)
    for step in range(1000):
        scalar, point = KeyPair.from_private(scalar).agree(point), scalar
        if step == 0:
            assert scalar == h("422c8e7a6227d7bca1350b3e2bb7279f7897b87bb6854b783c60e80311ae3079")
    assert scalar == h("684cf59ba83309552800ef566f2f4d3c1c3887c49360e3875f2eb94d99532c51")


def test_rfc_7748_6_1_key_agreement():
    alice = KeyPair.from_private(h("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a"))
    bob = KeyPair.from_private(h("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb"))
    assert alice.public == h("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a")
    assert bob.public == h("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    shared = h("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    assert alice.agree(bob.public) == bob.agree(alice.public) == shared


@pytest.mark.parametrize("high_bit", [0, 2**255])
@pytest.mark.parametrize("point", LOW_ORDER)
def test_low_order_points_are_refused(point, high_bit):
    """The points of order 1, 2, 4 and 8 on the curve and its twist, however encoded (the list of Wycheproof)."""
    public = (LOW_ORDER[point] + high_bit).to_bytes(32, "little")
    for pair in (KeyPair.generate(), KeyPair.from_private(bytes(31) + b"\x01")):
        with pytest.raises(KeyRefused, match="low order"):
            pair.agree(public)


@pytest.mark.parametrize("case", RFC_5869)
def test_rfc_5869_hkdf_sha256(case):
    secret, salt, info, expected = RFC_5869[case]
    assert HKDF(hashes.SHA256(), len(h(expected)), salt=salt, info=info).derive(secret) == h(expected)


def test_rfc_8439_2_3_2_chacha20_block():
    stream = Cipher(algorithms.ChaCha20(run(0, 31), h("01000000000000090000004a00000000")), mode=None).encryptor()
    assert stream.update(bytes(64)) == h(
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


def test_rfc_8439_2_4_2_chacha20_encryption():
    stream = Cipher(algorithms.ChaCha20(run(0, 31), h("01000000000000000000004a00000000")), mode=None).encryptor()
    assert stream.update(SUNSCREEN) == h(
        "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0bf91b65c5524733ab8f593dabcd62b357"
        "1639d624e65152ab8f530c359f0861d807ca0dbf500d6a6156a38e088a22b65e52bc514d16ccf806818ce91ab7793736"
        "5af90bbf74a35be6b40b8eedf2785e42874d"
    )


def test_rfc_8439_a_1_chacha20_through_keystream():
    """Test vectors 1 and 2 have a nonce of zero, as ours: blocks 0 and 1 of the zero key."""
    elements = np.empty(32, np.uint32)
    keystream(bytes(32), elements, StreamCipher.CHACHA20)
    assert elements.tobytes() == h(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )


def test_rfc_8439_2_8_2_chacha20_poly1305():
    sealed = ChaCha20Poly1305(run(0x80, 0x9F)).encrypt(
        h("070000004041424344454647"), SUNSCREEN, h("50515253c0c1c2c3c4c5c6c7")
    )
    assert sealed == h(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b"
        "1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691"
    )


@pytest.mark.parametrize("cipher", SP_800_38A)
def test_sp_800_38a_f_5_counter_mode(cipher):
    """F.5.1 and F.5.5, whose counter starts far into the stream that our key would make."""
    key, encrypted = SP_800_38A[cipher]
    stream = prg._keystream_context(h(key), SP_800_38A_COUNTER * cipher.block_bytes, cipher)
    assert stream.update(SP_800_38A_PLAIN) == h(encrypted)


@pytest.mark.parametrize(
    ("cipher", "block"),
    [
        (StreamCipher.AES128, "66e94bd4ef8a2c3b884cfa59ca342b2e"),
        (StreamCipher.AES256, "dc95c078a2408989ad48a21492842087"),
    ],
)
def test_gcm_hash_keys_are_the_first_block_of_a_zero_key(cipher, block):
    """H of the GCM specification's test cases 1 and 13: the cipher at counter zero, through keystream."""
    elements = np.empty(16, np.uint8)
    keystream(bytes(cipher.key_bytes), elements, cipher)
    assert elements.tobytes() == h(block)


@pytest.mark.parametrize(
    ("plain", "sealed"),
    [
        (b"", "530f8afbc74536b9a963b4f1c4cb738b"),
        (bytes(16), "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"),
    ],
)
def test_gcm_specification_13_and_14_through_seal(plain, sealed):
    assert seal(Aead.AES256_GCM, bytes(32), plain, b"") == h(sealed)
    assert unseal(Aead.AES256_GCM, bytes(32), h(sealed), b"") == plain


@pytest.mark.parametrize(
    ("length", "associated", "tag"),
    [
        (64, "", "b094dac5d93471bdec1a502270e3cc6c"),
        (60, "feedfacedeadbeeffeedfacedeadbeefabaddad2", "76fc6ece0f4e1768cddf8853bb2d551b"),
    ],
)
def test_gcm_specification_15_and_16(length, associated, tag):
    sealed = keys._aead(Aead.AES256_GCM, GCM_KEY).encrypt(GCM_NONCE, GCM_PLAIN[:length], h(associated))
    assert sealed == GCM_CIPHER[:length] + h(tag)


@pytest.mark.parametrize(("private", "public", "message", "signature"), RFC_8032_7_1)
def test_rfc_8032_7_1_ed25519(private, public, message, signature):
    identity = Identity.from_private(h(private))
    assert identity.public == h(public)
    assert identity.sign(h(message)) == h(signature)
    verify(h(public), h(signature), h(message))
    with pytest.raises(SignatureRefused):
        verify(h(public), h(signature), h(message) + b"\0")


# Frozen vectors of this library. A change here changes the protocol: raise its version.

FROZEN_STREAMS = {
    StreamCipher.AES256: (
        "f29000b62a499fd0a9f39a6add2e7780",
        "b22753304d69b57f49d10a62eb01c832",
        "b7813deb1113822b711b4a416b6160d7302585bde7c4dc63ff96cf554e0cdb1b",
    ),
    StreamCipher.AES128: (
        "c6a13b37878f5b826f4f8162a1c8d879",
        "5920ea9d81b874b81a7260643279c8ff",
        "f161c3ab956769a09c9b6e1340bed0c5dd594264434da0fb3f837c108a1e238f",
    ),
    StreamCipher.CHACHA20: (
        "39fd2b7dd9c5196a8dbd0377b8dc4a49",
        "74011999097bb14e19b225ef92a6c666",
        "01d24d8d3937f139f31162a6fc6a1af49c2bd9fd9f56daeb7c8c3cc6bf191996",
    ),
}
"""For the key 0, 1, 2, ...: the first 16 bytes, 16 bytes from 1 MiB on, SHA-256 of 3 MiB and 20 bytes."""


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("cipher", StreamCipher)
def test_frozen_streams_at_any_offset_and_number_of_threads(cipher, threads):
    first, far, digest = FROZEN_STREAMS[cipher]
    key = run(0, cipher.key_bytes - 1)
    elements = np.zeros(786_437, np.uint32)
    add_keystreams(elements, [key], cipher=cipher, threads=threads)
    stream = elements.tobytes()
    assert stream[:16].hex() == first
    assert stream[2**20 : 2**20 + 16].hex() == far
    assert sha256(stream).hexdigest() == digest
    plain = np.empty_like(elements)
    keystream(key, plain, cipher)
    assert np.array_equal(elements, plain)


def test_frozen_mask_of_three_neighbours():
    total = np.arange(5, dtype=np.uint32)
    keys = [sha256(b"neighbour %d" % number).digest() for number in range(3)]
    add_keystreams(total, keys[:2], keys[2:])
    assert total.tolist() == [817052099, 115465549, 4249772390, 1787203577, 2655697548]


def test_frozen_random_elements():
    assert random_uints(4, np.uint64, run(0, 31)).tolist() == [
        15032814528976949490,
        9256919087594533801,
        16546147286388202992,
        4410926500381718182,
    ]


def test_frozen_derivation():
    assert derive(run(0, 31), 42, label="mask", context=run(32, 63), parts=[b"one", b"", b"two"]).hex() == (
        "a6c9a1157b4bbccd70a993d68d936e4c5c8cdfd94f202cddabd540da29ac6003b7ad63d7c7cb4efc8156"
    )


@pytest.mark.parametrize(
    ("aead", "sealed"),
    [
        (Aead.AES256_GCM, "7acbdafec644e2cf6ddb27c4ec400078125bdeceba4d22b4ca98"),
        (Aead.CHACHA20_POLY1305, "6ccf2d11de8ec7a3761255f2dee49900b60a798a7e3ff3535df4"),
    ],
)
def test_frozen_seal(aead, sealed):
    key, plain, associated = run(0, 31), b"two shares", b"from 3 to 5"
    assert seal(aead, key, plain, associated).hex() == sealed
    assert unseal(aead, key, h(sealed), associated) == plain
    with pytest.raises(SharesRefused):
        unseal(aead, key, h(sealed), b"from 5 to 3")
