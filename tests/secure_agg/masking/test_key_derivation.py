"""No signed message of the protocol can be taken for one of another kind."""

import numpy as np

from secure_agg.masking import key_derivation


def test_every_kind_of_signed_message_has_a_label_of_its_own():
    context, bits = bytes(32), np.ones(3, bool)
    messages = [
        key_derivation.check_message(context, bits),
        key_derivation.complaint_message(context, 1, bits, b""),
        key_derivation.input_message(context, bytes(32), bits),
        key_derivation.survivors_message(context, bytes(32), bits, bits),
        key_derivation.shares_associated_data(context, sender=(1, b""), receiver=(2, b"")),
    ]
    labels = [message[4 : 4 + int.from_bytes(message[:4], "big")] for message in messages]
    assert len(set(labels)) == len(labels)
