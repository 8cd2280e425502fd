"""The client of a masked sum: it eats the server's messages, returns its own, and never speaks to a network.

One object lives for one round:

    advertise(invitation) -> advertisement     two fresh key pairs
    share(roster)         -> shares            both secrets, cut among the neighbours
    mask(delivery, x)     -> masked input      x + self mask + sum over neighbours of +- pair masks
    confirm(survivors)    -> confirmation      signed terms only
    unmask(request)       -> reveal            one share per neighbour, once, and then nothing

A message that does not belong here is refused and changes nothing. A message that asks for what would open a client
ends the round: the secrets are deleted first and the error raised then. Python cannot promise that no copy of a deleted
secret is left in memory; seeds and shares are kept in buffers that are overwritten, key objects are let go.

Sources: Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", figure 4;
Bell et al. 2020 for the sparse graph.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import numpy as np

from secure_agg import shamir
from secure_agg.errors import (
    AlreadyAnswered,
    ConfigurationError,
    KeyRefused,
    MalformedMessage,
    RosterRefused,
    SharesRefused,
    SignatureRefused,
    StaleMessage,
    TermsRefused,
    TooFewClients,
    UnexpectedStage,
    UnmaskRefused,
)
from secure_agg.keys import KEY_BYTES, Identity, KeyPair, seal, unseal, verify, well_formed
from secure_agg.masking import bindings
from secure_agg.masking.floor import Floor
from secure_agg.masking.graph import Circle
from secure_agg.masking.messages import (
    SERVER,
    Advertisement,
    Delivery,
    Envelope,
    Request,
    Reveal,
    Roster,
    Shares,
    Stage,
    Survivors,
    header,
)
from secure_agg.masking.snapshot import Snapshot
from secure_agg.masking.terms import MAX_ROUND, RUN_BYTES, Terms
from secure_agg.prg import Words, accept_threads, add_streams

Store = Callable[[bytes], None]
"""Keeps a snapshot safe; called before the bytes that it allows are handed out."""


class MaskingClient:
    """One client in one round.

    Args:
        client: its id, known to all.
        floor: the least it accepts.
        run: the 16 bytes of the run it means to take part in.
        after: the last round it took part in; only later rounds are accepted, so no round is answered twice.
        identity: its signing key, for signed terms.
        directory: the identities of the other clients by id, for signed terms; it came some other way than this server.
        store: keeps snapshots, for clients whose process may end between messages.
        threads: for making masks.
    """

    def __init__(
        self,
        client: int,
        floor: Floor,
        *,
        run: bytes,
        after: int = -1,
        identity: Identity | None = None,
        directory: Mapping[int, bytes] | None = None,
        store: Store | None = None,
        threads: int = 1,
    ) -> None:
        if not 0 <= client < SERVER:
            raise ConfigurationError(f"the client's id is {client}; give one from 0 to {SERVER - 1}")
        if len(run) != RUN_BYTES:
            raise ConfigurationError(f"run has {len(run)} bytes; give {RUN_BYTES}")
        accept_threads(threads)
        if not -1 <= after < MAX_ROUND:
            raise ConfigurationError(f"after is {after}; give the last round taken part in, or -1 for none")
        self.client = int(client)
        self._floor = floor
        self._run = run
        self._identity = identity
        self._directory = directory or {}
        self._store = store
        self._threads = threads
        self._state = Snapshot(client=int(client), run=run, after=int(after))

    @classmethod
    def restore(
        cls,
        snapshot: bytes,
        floor: Floor,
        *,
        identity: Identity | None = None,
        directory: Mapping[int, bytes] | None = None,
        store: Store | None = None,
        threads: int = 1,
    ) -> "MaskingClient":
        """The client that a store kept, in another process.

        Raises:
            ConfigurationError: the bytes are not a snapshot of this version.
        """
        state = Snapshot.decode(snapshot)
        client = cls(
            state.client, floor,
            run=state.run, after=state.after, identity=identity, directory=directory, store=store, threads=threads,
        )  # fmt: skip
        client._state = state
        return client

    @property
    def awaits(self) -> Stage | None:
        """The message it takes next, or nothing when its round is over."""
        return self._state.awaits

    @property
    def ended(self) -> Literal["answered", "aborted"] | None:
        """How its round ended, if it has."""
        return self._state.ended

    @property
    def terms(self) -> Terms:
        """What it agreed to.

        Raises:
            ConfigurationError: no invitation has been accepted, or the round is over.
        """
        if self._state.terms is None:
            raise ConfigurationError("this client holds no terms: it has accepted no invitation, or its round is over")
        return self._state.terms

    def snapshot(self) -> bytes:
        """All that `restore` needs; it holds the secrets of the round in the clear, so keep it as one."""
        return self._state.encode()

    def advertise(self, invitation: bytes) -> bytes:
        """Answer the invitation with two fresh public keys.

        Raises:
            MessageRefused: it is malformed, stale or misdirected.
            TermsRefused: the terms are below this client's floor, or need an identity it does not have.
        """
        envelope = self._open(invitation, Stage.INVITATION)
        terms = Terms.decode(bytes(envelope.body))
        if terms.run != self._run or terms.round <= self._state.after:
            raise StaleMessage(
                f"the invitation is to round {terms.round}; this client takes part in rounds after {self._state.after}"
            )
        envelope.expect_round(terms.round)
        with self._or_end():
            self._floor.accept_terms(terms)
            signature = b""
            mask_pair, channel_pair = KeyPair.generate(), KeyPair.generate()
            if terms.signed:
                if self._identity is None:
                    raise TermsRefused("the terms are signed and this client was given no identity to sign with")
                signature = self._identity.sign(
                    bindings.advertisement(terms, self.client, mask_pair.public, channel_pair.public)
                )
            self._state.terms, self._state.keys = terms, (mask_pair, channel_pair)
            reply = Advertisement(mask_pair.public, channel_pair.public, signature).encode()
            return self._reply(Stage.ADVERTISEMENT, reply, then=Stage.ROSTER)

    def share(self, roster: bytes) -> bytes:
        """Cut both secrets among the neighbours and seal each pair of shares for its holder.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
            RosterRefused: too few clients, or this client is not among them with its own keys.
            KeyRefused: a neighbour's key is of low order, repeated or this client's own.
            SignatureRefused: a neighbour's keys are not signed by the identity the directory knows.
        """
        envelope, terms = self._open(roster, Stage.ROSTER), self.terms
        envelope.expect_round(terms.round)
        listed = Roster.decode(envelope.body, terms)
        with self._or_end():
            state, (mask_pair, channel_pair) = self._state, self._keys
            self._floor.accept_roster(terms, len(listed.ids))
            if self.client not in listed.ids:
                raise RosterRefused(f"client {self.client} advertised keys and is not on the roster")
            circle = Circle(terms, listed.ids)
            neighbours = circle.neighbours(self.client)
            self._accept_keys(neighbours, listed.advertisements)
            self_seed = bytearray(secrets.token_bytes(KEY_BYTES))
            of_key = shamir.split(mask_pair.private_bytes(), terms.threshold, circle.degree)
            of_seed = shamir.split(bytes(self_seed), terms.threshold, circle.degree)
            sealed = []
            for neighbour, theirs, key_share, seed_share in zip(
                neighbours, listed.advertisements, of_key, of_seed, strict=True
            ):
                outbound, inbound = bindings.channels(
                    circle.context, channel_pair.agree(theirs.channel_key),
                    ours=(self.client, channel_pair.public), theirs=(neighbour, theirs.channel_key),
                )  # fmt: skip
                associated = bindings.shares(
                    circle.context, sender=(self.client, mask_pair.public), receiver=(neighbour, theirs.mask_key)
                )
                sealed.append(seal(terms.suite.aead, outbound, key_share + seed_share, associated))
                state.inbound[neighbour] = inbound
            state.roster, state.context, state.neighbours = listed.ids, circle.context, neighbours
            state.mask_keys = tuple(theirs.mask_key for theirs in listed.advertisements)
            state.self_seed = self_seed
            commitment = bindings.commitment(circle.context, bytes(self_seed), self.client)
            return self._reply(Stage.SHARES, Shares(commitment, tuple(sealed)).encode(), then=Stage.DELIVERY)

    def mask(self, delivery: bytes, vector: Words) -> bytes:
        """Open the neighbours' shares, keep them, and return the vector under its masks.

        Args:
            delivery: the server's message.
            vector: `terms.length` ring words; bits above the ring's do not travel.

        Raises:
            ConfigurationError: the vector has another dtype or length than the terms say; nothing changed.
            MessageRefused: the message is malformed, stale, misdirected or out of turn.
            TooFewClients: fewer neighbours shared than the threshold.
            SharesRefused: a pair of shares does not open as sent by this neighbour to this client in this round.
        """
        envelope, terms = self._open(delivery, Stage.DELIVERY), self.terms
        envelope.expect_round(terms.round)
        state = self._state
        delivered = Delivery.decode(envelope.body, len(state.neighbours))
        shape, dtype = getattr(vector, "shape", None), getattr(vector, "dtype", None)
        if type(vector) is not np.ndarray or dtype != terms.ring.dtype or shape != (terms.length,):
            raise ConfigurationError(
                f"got a {type(vector).__name__} of shape {shape} and dtype {dtype}; the terms ask for an array of "
                f"({terms.length},) and {terms.ring.dtype}"
            )
        with self._or_end():
            senders = np.flatnonzero(delivered.shared).tolist()
            if len(senders) < terms.threshold:
                raise TooFewClients(
                    f"{len(senders)} of {len(state.neighbours)} neighbours shared; the threshold is {terms.threshold}"
                )
            mask_pair, _ = self._keys
            plus: list[bytes] = [bindings.self_mask(terms, state.context, bytes(state.self_seed), self.client)]
            minus: list[bytes] = []
            for place, sealed in zip(senders, delivered.sealed, strict=True):
                neighbour = state.neighbours[place]
                their_key = state.mask_keys[place]
                associated = bindings.shares(
                    state.context, sender=(neighbour, their_key), receiver=(self.client, mask_pair.public)
                )
                pair = unseal(terms.suite.aead, state.inbound[neighbour], sealed, associated)
                self._accept_pair(neighbour, pair)
                state.held[neighbour] = bytearray(pair)
                mask = bindings.pair_mask(
                    terms, state.context, mask_pair,
                    ours=self.client, theirs=neighbour, their_key=their_key,
                )  # fmt: skip
                (plus if self.client < neighbour else minus).append(mask)
            masked = vector.copy()
            add_streams(masked, plus, minus, terms.suite.stream, self._threads)
            state.forget_masks()
            then = Stage.SURVIVORS if terms.signed else Stage.REQUEST
            return self._reply(Stage.MASKED_INPUT, terms.ring.pack(masked).data, then=then)

    def confirm(self, survivors: bytes) -> bytes:
        """Sign the list of survivors, so that no client reveals shares under another list.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
            UnmaskRefused: the list leaves this client out although its input was sent.
            TooFewClients: fewer survivors than the threshold or this client's floor asks for.
        """
        envelope, terms = self._open(survivors, Stage.SURVIVORS), self.terms
        envelope.expect_round(terms.round)
        state = self._state
        alive = Survivors.decode(envelope.body, len(state.roster)).alive
        with self._or_end():
            if self._identity is None:
                raise SignatureRefused("the terms are signed and this client was given no identity to sign with")
            living = frozenset(state.roster[alive].tolist())
            if self.client not in living:
                raise UnmaskRefused(f"client {self.client} sent its masked input and is not among the survivors")
            strangers = living - {self.client} - set(state.held)
            if strangers:
                raise UnmaskRefused(f"client {min(strangers)} is called a survivor and never shared with this client")
            self._accept_survivors(len(living) - 1)
            state.confirmed = living
            signature = self._identity.sign(bindings.survivors(state.context, alive))
            return self._reply(Stage.CONFIRMATION, signature, then=Stage.REQUEST)

    def unmask(self, request: bytes) -> bytes:
        """Reveal one share for each neighbour named, once; every secret of the round is gone before this returns.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
            AlreadyAnswered: a request was answered before.
            UnmaskRefused: the lists overlap, name neighbours who never shared, or contradict the confirmed survivors.
            TooFewClients: fewer survivors than the threshold or the floor asks for, or too few confirmations.
            SignatureRefused: a confirmation is not over the survivors that this client confirmed.
        """
        envelope, terms = self._open(request, Stage.REQUEST), self.terms
        envelope.expect_round(terms.round)
        asked = Request.decode(envelope.body, len(self._state.neighbours), signed=terms.signed)
        with self._or_end():
            self._accept_request(asked)
            shares = []
            for place in np.flatnonzero(asked.survived | asked.dropped).tolist():
                pair = bytes(self._state.held[self._state.neighbours[place]])
                of_key, of_seed = pair[: shamir.SHARE_BYTES], pair[shamir.SHARE_BYTES :]
                shares.append(of_seed if asked.survived[place] else of_key)
            reply = header(Stage.REVEAL, terms, self.client, SERVER) + Reveal(tuple(shares)).encode()
            self._state.end("answered")
            self._save()
            return reply

    @property
    def _keys(self) -> tuple[KeyPair, KeyPair]:
        if self._state.keys is None:
            raise ConfigurationError("this client's keys of the round are gone; begin the round anew")
        return self._state.keys

    def _accept_keys(self, neighbours: tuple[int, ...], advertisements: tuple[Advertisement, ...]) -> None:
        """Keys of the neighbours: none repeated, none this client's own, and signed where terms say so."""
        terms = self.terms
        seen = {pair.public for pair in self._keys}
        for neighbour, theirs in zip(neighbours, advertisements, strict=True):
            for key in (theirs.mask_key, theirs.channel_key):
                if not well_formed(key):
                    raise KeyRefused(
                        f"client {neighbour} advertises {key.hex()[:16]}.., of low order or not in its one form"
                    )
                if key in seen:
                    raise KeyRefused(f"client {neighbour} advertises a key that is another party's: {key.hex()[:16]}..")
                seen.add(key)
            if terms.signed:
                signed = bindings.advertisement(terms, neighbour, theirs.mask_key, theirs.channel_key)
                verify(self._identity_of(neighbour), theirs.signature, signed)

    def _identity_of(self, neighbour: int) -> bytes:
        if neighbour not in self._directory:
            raise SignatureRefused(
                f"the directory knows no client {neighbour}; add its identity, or leave the client out"
            )
        return self._directory[neighbour]

    @staticmethod
    def _accept_pair(neighbour: int, pair: bytes) -> None:
        try:
            shamir.check(pair[: shamir.SHARE_BYTES])
            shamir.check(pair[shamir.SHARE_BYTES :])
        except MalformedMessage as refused:
            raise SharesRefused(f"client {neighbour} sealed what is no pair of shares; leave this round") from refused

    def _accept_survivors(self, others: int) -> None:
        """Enough surviving neighbours; where everybody is a neighbour, also enough clients in the sum."""
        state, terms = self._state, self.terms
        if others < terms.threshold:
            raise TooFewClients(f"{others} neighbours survive; the threshold is {terms.threshold}")
        if len(state.neighbours) == len(state.roster) - 1 and others + 1 < self._floor.clients:
            raise TooFewClients(f"{others + 1} clients survive; this client's floor is {self._floor.clients}")

    def _accept_request(self, asked: Request) -> None:
        state, terms = self._state, self.terms
        shared = np.fromiter((neighbour in state.held for neighbour in state.neighbours), bool)
        if (asked.survived & asked.dropped).any():
            both = state.neighbours[int(np.flatnonzero(asked.survived & asked.dropped)[0])]
            raise UnmaskRefused(f"client {both} is named as survived and as dropped; both secrets would open its input")
        if ((asked.survived | asked.dropped) & ~shared).any():
            raise UnmaskRefused("the request names a neighbour that never shared a secret with this client")
        self._accept_survivors(int(asked.survived.sum()))
        if terms.signed:
            living = np.fromiter((neighbour in state.confirmed for neighbour in state.neighbours), bool)
            if (asked.survived & ~living).any() or (asked.dropped & living).any():
                raise UnmaskRefused("the request contradicts the list of survivors that this client confirmed")
            if asked.confirmations and (asked.confirmed & ~living).any():
                raise UnmaskRefused("a confirmation is by a client that is not among the survivors")
            if len(asked.confirmations) < terms.threshold:
                raise TooFewClients(
                    f"{len(asked.confirmations)} clients confirmed the survivors; the threshold is {terms.threshold}"
                )
            alive = np.fromiter((int(member) in state.confirmed for member in state.roster), bool)
            signed = bindings.survivors(state.context, alive)
            for place, signature in zip(np.flatnonzero(asked.confirmed).tolist(), asked.confirmations, strict=True):
                verify(self._identity_of(state.neighbours[place]), signature, signed)

    def _open(self, data: bytes, stage: Stage) -> Envelope:
        """The envelope of the message due, from the server to this client, in this run."""
        if self._state.ended == "answered":
            raise AlreadyAnswered(f"client {self.client} has revealed its shares of this round; it answers no more")
        if self._state.ended == "aborted":
            raise UnexpectedStage(f"client {self.client} has left this round; it answers nothing more")
        envelope = Envelope.decode(data)
        envelope.expect(stage=stage, run=self._run, sender=SERVER, receiver=self.client)
        if self._state.awaits is not stage:
            raise UnexpectedStage(f"got the {stage} message; client {self.client} awaits the {self._state.awaits}")
        return envelope

    def _reply(self, stage: Stage, body: bytes | memoryview, *, then: Stage) -> bytes:
        """The message to send, once the state that follows it is stored."""
        message = b"".join([header(stage, self.terms, self.client, SERVER), body])
        self._state.awaits = then
        self._save()
        return message

    def _save(self) -> None:
        if self._store is not None:
            self._store(self._state.encode())

    @contextmanager
    def _or_end(self) -> Iterator[None]:
        """Whatever goes wrong inside ends the round with its secrets deleted."""
        try:
            yield
        except BaseException as reason:
            self._state.end("aborted")
            try:
                self._save()
            except Exception as failed:
                reason.add_note(f"besides, the store failed to keep the end of this round: {failed!r}")
            raise
