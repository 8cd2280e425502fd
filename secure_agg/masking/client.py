"""The client of a masked sum: a state machine that takes the server's messages and returns its own, without a network.

One object lives for one round:

    advertise(invitation) -> advertisement     two fresh key pairs
    share(roster)         -> shares            both secrets, secret-shared among the neighbours
    check(delivery)       -> check             signed terms only: a signature that all shares are right, or a complaint
    mask(go-ahead, x)     -> masked input      x + self mask + sum over neighbours of +- pair masks
    confirm(survivors)    -> confirmation      signed terms only
    unmask(request)       -> reveal            one share per neighbour, only once

Unsigned terms have no check: `mask` takes the delivery itself.

What keeps a server that lies from one client's input, or from a sum over a part of the clients, under signed terms:

- In the complete graph each client masks with those whose checks it verified, and reveals once a threshold of others
  confirmed the same lists. Two such groups have an honest client in common, so there is one.
- On a sparse graph there may be several: lists that differ from one arc of the circle to the next. So each client signs
  with its input whom it was told had checked, and `confirm` refuses neighbours who were told otherwise. Then no honest
  client reveals the self-mask seed of a neighbour under another list, and an arc is cut off only where enough colluding
  clients stand at both of its ends (`secure_agg.masking.parameters` has the proof).

A message that is not the expected one is refused and changes nothing. A message whose answer would unmask a client
aborts the round: the secrets are deleted first and the error is raised then. Python cannot guarantee that no copy of a
deleted secret remains in memory; seeds and shares are kept in buffers that are overwritten, key objects are released.

Sources: Bonawitz et al. 2017, "Practical secure aggregation for privacy-preserving machine learning", figure 4;
Bell et al. 2020 for the sparse graph.
"""

import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import numpy as np

from secure_agg import shamir
from secure_agg.errors import (
    AlreadyAnswered,
    ConfigurationError,
    KeyRefused,
    RosterRefused,
    SharesRefused,
    SignatureRefused,
    StaleMessage,
    TermsRefused,
    TooFewClients,
    UnexpectedStage,
    UnmaskRefused,
)
from secure_agg.masking import key_derivation
from secure_agg.masking.graph import HararyGraph
from secure_agg.masking.messages import (
    SERVER,
    Advertisement,
    Bits,
    Complaint,
    Delivery,
    EncryptedShares,
    Envelope,
    GoAhead,
    RevealedShares,
    Roster,
    Stage,
    Survivors,
    UnmaskRequest,
    encode_header,
    membership_bits,
)
from secure_agg.masking.requirements import ClientRequirements
from secure_agg.masking.sealed_pairs import open_pair
from secure_agg.masking.state import ClientState
from secure_agg.masking.terms import BOUND_BYTES, MAX_ROUND, RUN_BYTES, Terms
from secure_agg.primitives.keys import KEY_BYTES, Identity, KeyPair, is_canonical_public_key, seal, verify
from secure_agg.primitives.prg import RingElements, add_keystreams, check_threads

Store = Callable[[bytes], None]
"""Stores a snapshot durably; called before the message that follows from it is returned."""


class MaskingClient:
    """One client in one round.

    Args:
        client: id of the client, known to all.
        requirements: minimum requirements on the terms.
        run: 16 bytes that identify the run it takes part in.
        last_round: the last round it took part in; only later rounds are accepted, so no round is answered twice.
        identity: its signing key, for signed terms.
        directory: identities of the other clients by id, for signed terms; obtained from another source than this
            server.
        store: stores snapshots, for clients whose process may end between messages.
        threads: threads for generating masks.
        key_pair: makes a fresh key pair.
    """

    def __init__(
        self,
        client: int,
        requirements: ClientRequirements,
        *,
        run: bytes,
        last_round: int = -1,
        identity: Identity | None = None,
        directory: Mapping[int, bytes] | None = None,
        store: Store | None = None,
        threads: int = 1,
        key_pair: Callable[[], KeyPair] = KeyPair.generate,
    ) -> None:
        if not 0 <= client < SERVER:
            raise ConfigurationError(f"the client's id is {client}; give one from 0 to {SERVER - 1}")
        if len(run) != RUN_BYTES:
            raise ConfigurationError(f"run has {len(run)} bytes; give {RUN_BYTES}")
        check_threads(threads)
        if not -1 <= last_round < MAX_ROUND:
            raise ConfigurationError(f"last_round is {last_round}; give the last round taken part in, or -1 for none")
        self.client = int(client)
        self._requirements = requirements
        self._run = run
        self._identity = identity
        self._directory = directory or {}
        self._store = store
        self._threads = threads
        self._key_pair = key_pair
        self._state = ClientState(client=int(client), run=run, last_round=int(last_round))

    @classmethod
    def restore(
        cls,
        snapshot: bytes,
        requirements: ClientRequirements,
        *,
        identity: Identity | None = None,
        directory: Mapping[int, bytes] | None = None,
        store: Store | None = None,
        threads: int = 1,
    ) -> "MaskingClient":
        """Restore a client from its latest snapshot, in another process.

        Never from an older one, as a backup is: a client that was rolled back answers again, and gives the server what
        a colluding client would. Nothing in a snapshot shows its age.

        Raises:
            ConfigurationError: the bytes are not a snapshot of this version.
        """
        state = ClientState.decode(snapshot)
        client = cls(
            state.client, requirements,
            run=state.run, last_round=state.last_round,
            identity=identity, directory=directory, store=store, threads=threads,
        )  # fmt: skip
        client._state = state
        return client

    @property
    def awaits(self) -> Stage | None:
        """Stage of the message it takes next, or None when its round is over."""
        return self._state.awaits

    @property
    def ended(self) -> Literal["answered", "aborted"] | None:
        """How its round ended, or None."""
        return self._state.ended

    @property
    def terms(self) -> Terms:
        """The accepted terms.

        Raises:
            ConfigurationError: no invitation has been accepted, or the round is over.
        """
        if self._state.terms is None:
            raise ConfigurationError("this client holds no terms: it has accepted no invitation, or its round is over")
        return self._state.terms

    def snapshot(self) -> bytes:
        """All that `restore` needs, with the secrets of the round in plaintext: store it like a private key."""
        return self._state.encode()

    def advertise(self, invitation: bytes) -> bytes:
        """Answer the invitation with two fresh public keys.

        Raises:
            MessageRefused: it is malformed, stale or misdirected.
            TermsRefused: the terms do not meet this client's requirements, or need an identity it does not have.
        """
        envelope = self._open(invitation, Stage.INVITATION)
        terms = Terms.decode(bytes(envelope.body))
        if terms.run != self._run or terms.round <= self._state.last_round:
            raise StaleMessage(
                f"the invitation is to round {terms.round}; this client takes part in rounds after "
                f"{self._state.last_round}"
            )
        envelope.expect_round(terms.round)
        with self._abort_on_error():
            self._requirements.check_terms(terms)
            signature = b""
            mask_pair, channel_pair = self._key_pair(), self._key_pair()
            if terms.signed:
                if self._identity is None:
                    raise TermsRefused("the terms are signed and this client was given no identity to sign with")
                signature = self._identity.sign(
                    key_derivation.advertisement_message(terms, self.client, mask_pair.public, channel_pair.public)
                )
            self._state.terms, self._state.keys = terms, (mask_pair, channel_pair)
            reply = Advertisement(mask_pair.public, channel_pair.public, signature).encode()
            return self._reply(Stage.ADVERTISEMENT, reply, then=Stage.ROSTER)

    def share(self, roster: bytes) -> bytes:
        """Secret-share both secrets among the neighbours and encrypt each pair of shares for its holder.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
            RosterRefused: too few clients, a graph that may fail against so many colluding ones, or this client is not
                among them with its own keys.
            KeyRefused: a neighbour's key is of low order, repeated or this client's own.
            SignatureRefused: under signed terms the directory does not know a participant, or a neighbour's keys are
                not signed by the identity that it knows.
        """
        envelope, terms = self._open(roster, Stage.ROSTER), self.terms
        envelope.expect_round(terms.round)
        roster_message = Roster.decode(envelope.body, terms)
        with self._abort_on_error():
            state, (mask_pair, channel_pair) = self._state, self._keys
            self._requirements.check_roster(terms, len(roster_message.ids))
            if self.client not in roster_message.ids:
                raise RosterRefused(f"client {self.client} advertised keys and is not on the roster")
            if terms.signed:
                for participant in roster_message.ids.tolist():
                    self._identity_of(participant)
            graph = HararyGraph(terms, roster_message.ids)
            neighbours = graph.neighbours(self.client)
            self._check_keys(neighbours, roster_message.advertisements)
            # The mask key recovers the pairwise masks if this client drops out, the self-mask seed its self mask if it
            # survives. Each neighbour holds a share of both and reveals one of them at most.
            self_seed = bytearray(secrets.token_bytes(KEY_BYTES))
            key_shares = shamir.split(mask_pair.private_bytes(), terms.threshold, graph.degree)
            seed_shares = shamir.split(bytes(self_seed), terms.threshold, graph.degree)
            sealed = []
            for neighbour, theirs, key_share, seed_share in zip(
                neighbours, roster_message.advertisements, key_shares, seed_shares, strict=True
            ):
                outbound, inbound = key_derivation.channel_keys(
                    graph.context, channel_pair.agree(theirs.channel_key),
                    ours=(self.client, channel_pair.public), theirs=(neighbour, theirs.channel_key),
                )  # fmt: skip
                associated = key_derivation.shares_associated_data(
                    graph.context, sender=(self.client, mask_pair.public), receiver=(neighbour, theirs.mask_key)
                )
                sealed.append(seal(terms.suite.aead, outbound, key_share + seed_share, associated))
                state.inbound_keys[neighbour] = inbound
            state.roster, state.context, state.neighbours = roster_message.ids, graph.context, neighbours
            state.mask_keys = tuple(theirs.mask_key for theirs in roster_message.advertisements)
            state.self_seed = self_seed
            commitment = key_derivation.self_mask_commitment(graph.context, bytes(self_seed), self.client)
            return self._reply(Stage.SHARES, EncryptedShares(commitment, tuple(sealed)).encode(), then=Stage.DELIVERY)

    def check(self, delivery: bytes) -> bytes:
        """Decrypt the neighbours' shares, and sign that they all are pairs of shares or accuse those who sent others.

        Who complains has left the round, its secrets deleted. In the complete graph a complaint carries this client's
        channel private key of the round, so that the server opens the accused pairs itself. The key gives the server
        what a colluding client would: a share of both secrets of everybody. A server that provokes complaints, and goes
        on without those who complained, gains no more than `threshold` allows for: the others mask only in a group
        larger than the threshold that checked and therefore did not complain, so fewer than n - threshold of n clients
        can have. On a sparse graph nothing bounds how many of a client's neighbours complain, so a complaint there
        carries no key, and is no evidence.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn, or the terms are unsigned.
            TooFewClients: fewer neighbours shared than the threshold or this client's requirements ask for.
        """
        envelope, terms = self._open(delivery, Stage.DELIVERY), self.terms
        envelope.expect_round(terms.round)
        if not terms.signed:
            raise UnexpectedStage("the terms are unsigned and have no check; mask the delivery at once")
        state = self._state
        delivered = Delivery.decode(envelope.body, self._among_neighbours())
        with self._abort_on_error():
            identity = self._signing_identity()
            state.listed = frozenset(state.roster[delivered.shared].tolist())
            if self.client not in state.listed:
                raise SharesRefused(f"client {self.client} shared its secrets and is not among those who did")
            shared = delivered.shared[self._among_neighbours()]
            accused = self._take_delivery(Delivery(shared, delivered.sealed), len(state.listed))
            if accused:
                return self._complain(identity, accused)
            signed = key_derivation.check_message(state.context, delivered.shared)
            return self._reply(Stage.CHECK, identity.sign(signed), then=Stage.GO_AHEAD)

    def mask(self, message: bytes, vector: RingElements, *, bound: bytes = bytes(BOUND_BYTES)) -> bytes:
        """The masked vector: under signed terms in answer to the go-ahead, otherwise to the delivery.

        The go-ahead names all that checked what they were delivered: this client masks with its neighbours among them,
        and reveals shares of no other. In the complete graph it verifies that each signed the same delivered set as
        this client did. A server that names different sets to different clients opens nothing: everybody whom a client
        masks with must be counted as a survivor or dropout by clients that confirmed the same set, and two groups
        larger than the threshold have an honest client in common. On a sparse graph this client signs the set with its
        masked input, for its neighbours to compare when they confirm the survivors.

        Args:
            message: the server's message.
            vector: `terms.length` ring elements; bits above the ring's are not transmitted.
            bound: digest of what the server sent with the round. Masks cancel only between clients with the same one.

        Raises:
            ConfigurationError: the vector has another dtype or length than the terms say, or `bound` has another length
                than 32; nothing changed.
            MessageRefused: the message is malformed, stale, misdirected or out of turn.
            TooFewClients: fewer neighbours shared, or checked, than the threshold or the requirements ask for.
            SharesRefused: a pair of shares does not decrypt as sent by this neighbour to this client in this round; the
                go-ahead names a neighbour that this client has no shares of.
            SignatureRefused: in the complete graph, a check is not over the set that this client was delivered.
        """
        state = self._state
        signed = state.terms.signed if state.terms else self._requirements.require_signatures
        envelope = self._open(message, Stage.GO_AHEAD if signed else Stage.DELIVERY)
        terms = self.terms
        envelope.expect_round(terms.round)
        go_ahead: GoAhead | Delivery
        if signed:
            go_ahead = GoAhead.decode(envelope.body, self._among_neighbours(here=not terms.signs_inputs))
        else:
            go_ahead = Delivery.decode(envelope.body, np.ones(len(state.neighbours), bool))
        if len(bound) != BOUND_BYTES:
            raise ConfigurationError(f"bound has {len(bound)} bytes; give a digest of {BOUND_BYTES}")
        shape, dtype = getattr(vector, "shape", None), getattr(vector, "dtype", None)
        if type(vector) is not np.ndarray or dtype != terms.ring.dtype or shape != (terms.length,):
            raise ConfigurationError(
                f"got a {type(vector).__name__} of shape {shape} and dtype {dtype}; the terms ask for an array of "
                f"({terms.length},) and {terms.ring.dtype}"
            )
        with self._abort_on_error():
            if isinstance(go_ahead, GoAhead):
                state.listed = self._verified(go_ahead)
                state.keep_shares_of(state.listed)
            elif refused := self._take_delivery(go_ahead, int(go_ahead.shared.sum()) + 1):
                raise next(iter(refused.values()))
            state.bound = bound
            signature = self._signing_identity().sign(self._input_message()) if terms.signs_inputs else b""
            masked = vector.copy()
            add_keystreams(masked, *self._mask_keys(), terms.suite.stream, self._threads)
            state.delete_mask_secrets()
            then = Stage.SURVIVORS if terms.signed else Stage.REQUEST
            return self._reply(Stage.MASKED_INPUT, terms.ring.pack(masked).data, signature, then=then)

    def partners(self, go_ahead: bytes) -> frozenset[int]:
        """The clients that are to be in the sum by a go-ahead, this one among them, once its signatures are verified.

        Nothing changes: whoever has to do something dear or final before it masks asks this first. In the complete
        graph each of these clients has signed that it goes on; on a sparse graph that is the server's word.

        Raises:
            As `mask` does.
        """
        envelope = self._open(go_ahead, Stage.GO_AHEAD)
        envelope.expect_round(self.terms.round)
        return self._verified(GoAhead.decode(envelope.body, self._among_neighbours(here=not self.terms.signs_inputs)))

    def survivors(self, survivors: bytes) -> frozenset[int]:
        """The clients that a list of survivors names; nothing changes.

        Whoever has requirements of its own on them asks this before it confirms.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
        """
        envelope = self._open(survivors, Stage.SURVIVORS)
        envelope.expect_round(self.terms.round)
        survived = Survivors.decode(envelope.body, self._among_neighbours(here=self.terms.signs_inputs))
        return frozenset(self._state.roster[survived.alive].tolist())

    def confirm(self, survivors: bytes) -> bytes:
        """Sign the list of survivors, so that no client reveals shares under another list.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
            UnmaskRefused: the list omits this client although its input was sent.
            TooFewClients: fewer survivors than the threshold or this client's requirements ask for.
            SignatureRefused: on a sparse graph, a surviving neighbour masked with others than this client was told.
        """
        envelope, terms = self._open(survivors, Stage.SURVIVORS), self.terms
        envelope.expect_round(terms.round)
        state = self._state
        survived = Survivors.decode(envelope.body, self._among_neighbours(here=terms.signs_inputs))
        alive = survived.alive
        with self._abort_on_error():
            identity = self._signing_identity()
            confirmed = frozenset(state.roster[alive].tolist())
            if self.client not in confirmed:
                raise UnmaskRefused(f"client {self.client} sent its masked input and is not among the survivors")
            unknown = confirmed - state.listed
            if unknown:
                raise UnmaskRefused(f"client {min(unknown)} is listed as a survivor and is not among those who checked")
            around = [neighbour for neighbour in state.neighbours if neighbour in confirmed]
            self._check_survivors(len(around), len(confirmed))
            signed = self._input_message()
            for neighbour, signature in zip(around, survived.signatures, strict=terms.signs_inputs):
                verify(self._identity_of(neighbour), signature, signed)
            state.confirmed = confirmed
            signature = identity.sign(self._survivors_message(alive))
            return self._reply(Stage.CONFIRMATION, signature, then=Stage.REQUEST)

    def unmask(self, request: bytes) -> bytes:
        """Reveal one share for each neighbour named, once; every secret of the round is deleted before this returns.

        Raises:
            MessageRefused: it is malformed, stale, misdirected or out of turn.
            AlreadyAnswered: a request was answered before.
            UnmaskRefused: the lists overlap, name neighbours who never shared, or contradict the confirmed survivors.
            TooFewClients: fewer survivors than the threshold or the requirements ask for, or too few confirmations.
            SignatureRefused: a confirmation is not over the survivors that this client confirmed.
        """
        envelope, terms = self._open(request, Stage.REQUEST), self.terms
        envelope.expect_round(terms.round)
        requested = UnmaskRequest.decode(envelope.body, len(self._state.neighbours), signed=terms.signed)
        with self._abort_on_error():
            self._check_request(requested)
            shares = []
            for index in np.flatnonzero(requested.survived | requested.dropped).tolist():
                pair = bytes(self._state.held_shares[self._state.neighbours[index]])
                key_share, seed_share = pair[: shamir.SHARE_BYTES], pair[shamir.SHARE_BYTES :]
                shares.append(seed_share if requested.survived[index] else key_share)
            reply = encode_header(Stage.REVEAL, terms, self.client, SERVER) + RevealedShares(tuple(shares)).encode()
            self._state.end("answered")
            self._save()
            return reply

    @property
    def _keys(self) -> tuple[KeyPair, KeyPair]:
        if self._state.keys is None:
            raise ConfigurationError("this client's keys of the round are gone; begin the round anew")
        return self._state.keys

    def _check_keys(self, neighbours: tuple[int, ...], advertisements: tuple[Advertisement, ...]) -> None:
        """Refuse neighbours' keys that are repeated, this client's own, or not signed where the terms require it."""
        terms = self.terms
        seen = {pair.public for pair in self._keys}
        for neighbour, theirs in zip(neighbours, advertisements, strict=True):
            for key in (theirs.mask_key, theirs.channel_key):
                if not is_canonical_public_key(key):
                    raise KeyRefused(
                        f"client {neighbour} advertises {key.hex()[:16]}.., of low order or not in canonical form"
                    )
                if key in seen:
                    raise KeyRefused(f"client {neighbour} advertises a key that is another party's: {key.hex()[:16]}..")
                seen.add(key)
            if terms.signed:
                signed = key_derivation.advertisement_message(terms, neighbour, theirs.mask_key, theirs.channel_key)
                verify(self._identity_of(neighbour), theirs.signature, signed)

    def _identity_of(self, neighbour: int) -> bytes:
        if neighbour not in self._directory:
            raise SignatureRefused(
                f"the directory knows no client {neighbour}; add its identity, or leave the client out"
            )
        return self._directory[neighbour]

    def _signing_identity(self) -> Identity:
        if self._identity is None:
            raise SignatureRefused("the terms are signed and this client was given no identity to sign with")
        return self._identity

    def _among_neighbours(self, *, here: bool = True) -> Bits:
        """One flag per participant: whether it is a neighbour, or for none where nothing of theirs is sent."""
        return membership_bits(self._state.roster, frozenset(self._state.neighbours if here else ()))

    def _listed(self) -> Bits:
        """One flag per participant: whether this client was told that it shared or, after the go-ahead, checked."""
        return membership_bits(self._state.roster, self._state.listed)

    def _input_message(self) -> bytes:
        return key_derivation.input_message(self._state.context, self._state.bound, self._listed())

    def _survivors_message(self, alive: Bits) -> bytes:
        return key_derivation.survivors_message(self._state.context, self._state.bound, self._listed(), alive)

    def _take_delivery(self, delivered: Delivery, listed: int) -> dict[int, SharesRefused]:
        """Decrypt and keep the pairs of shares; returns, by position among the neighbours, why one is refused.

        Args:
            delivered: flags and pairs of the neighbours.
            listed: number of clients that shared, as far as this client was told.
        """
        state, (mask_pair, _) = self._state, self._keys
        senders = np.flatnonzero(delivered.shared).tolist()
        self._check_partners(len(senders), listed, "shared")
        refused = {}
        for index, sealed in zip(senders, delivered.sealed, strict=True):
            neighbour = state.neighbours[index]
            try:
                state.held_shares[neighbour] = bytearray(
                    open_pair(
                        self.terms.suite.aead, state.inbound_keys[neighbour], state.context, sealed,
                        sender=(neighbour, state.mask_keys[index]), receiver=(self.client, mask_pair.public),
                    )
                )  # fmt: skip
            except SharesRefused as reason:
                refused[index] = reason
        return refused

    def _complain(self, identity: Identity, accused: Collection[int]) -> bytes:
        """Leave the round, and return the complaint; the secrets are deleted before."""
        state, terms, (_, channel_pair) = self._state, self.terms, self._keys
        flags = membership_bits(range(len(state.neighbours)), frozenset(accused))
        private = b"" if terms.neighbours else channel_pair.private_bytes()
        signed = key_derivation.complaint_message(state.context, self.client, flags, private)
        complaint = Complaint(flags, private, identity.sign(signed))
        state.end("aborted")
        self._save()
        return encode_header(Stage.CHECK, terms, self.client, SERVER) + complaint.encode()

    def _verified(self, go_ahead: GoAhead) -> frozenset[int]:
        """Those that checked; in the complete graph each has signed the delivered set that this client was told of."""
        state = self._state
        checked = frozenset(state.roster[go_ahead.checked].tolist())
        around = [neighbour for neighbour in state.neighbours if neighbour in checked]
        self._check_partners(len(around), len(checked), "checked")
        if self.client not in checked:
            raise SharesRefused(f"client {self.client} checked its shares and is not among those who did")
        unknown = checked - state.listed
        if unknown:
            raise SharesRefused(f"the go-ahead names client {min(unknown)}, which never shared with this client")
        signed = key_derivation.check_message(state.context, self._listed())
        for neighbour, signature in zip(around, go_ahead.signatures, strict=not self.terms.signs_inputs):
            verify(self._identity_of(neighbour), signature, signed)
        return checked

    def _mask_keys(self) -> tuple[list[bytes], list[bytes]]:
        """Keystream keys of the masks to add and to subtract."""
        state, terms, (mask_pair, _) = self._state, self.terms, self._keys
        seed = bytes(state.self_seed)
        plus = [key_derivation.self_mask_key(terms, state.context, seed, self.client, state.bound)]
        minus: list[bytes] = []
        for neighbour, their_key in zip(state.neighbours, state.mask_keys, strict=True):
            if neighbour in state.held_shares:
                mask = key_derivation.pairwise_mask_key(
                    terms, state.context, mask_pair,
                    ours=self.client, theirs=neighbour, their_key=their_key, bound=state.bound,
                )  # fmt: skip
                # Opposite signs on the two sides: the pairwise masks cancel in the sum.
                (plus if self.client < neighbour else minus).append(mask)
        return plus, minus

    def _check_partners(self, others: int, listed: int, did: str) -> None:
        """Refuse too few neighbours to mask with and, where all clients are listed, too few of those."""
        state, terms = self._state, self.terms
        if others < terms.threshold:
            raise TooFewClients(
                f"{others} of {len(state.neighbours)} neighbours {did}; the threshold is {terms.threshold}"
            )
        self._check_listed(listed, did)

    def _check_survivors(self, others: int, listed: int) -> None:
        """Refuse too few surviving neighbours and, where all clients are listed, too few in the sum."""
        if others < self.terms.threshold:
            raise TooFewClients(f"{others} neighbours survive; the threshold is {self.terms.threshold}")
        self._check_listed(listed, "survive")

    def _check_listed(self, listed: int, did: str) -> None:
        state, required = self._state, self._requirements.min_clients
        whole = self.terms.signed or len(state.neighbours) == len(state.roster) - 1
        if whole and listed < required:
            raise TooFewClients(f"{listed} clients {did}; this client requires {required}")

    def _check_request(self, requested: UnmaskRequest) -> None:
        state, terms = self._state, self.terms
        shared = np.fromiter((neighbour in state.held_shares for neighbour in state.neighbours), bool)
        # Both secrets of one client together unmask its input, so a request may name it in one list only.
        if (requested.survived & requested.dropped).any():
            both = state.neighbours[int(np.flatnonzero(requested.survived & requested.dropped)[0])]
            raise UnmaskRefused(
                f"client {both} is named as survived and as dropped; both secrets would unmask its input"
            )
        if ((requested.survived | requested.dropped) & ~shared).any():
            raise UnmaskRefused("the request names a neighbour that never shared a secret with this client")
        surviving = int(requested.survived.sum())
        self._check_survivors(surviving, len(state.confirmed) if terms.signed else surviving + 1)
        if terms.signed:
            survives = np.fromiter((neighbour in state.confirmed for neighbour in state.neighbours), bool)
            if (requested.survived & ~survives).any() or (requested.dropped & survives).any():
                raise UnmaskRefused("the request contradicts the list of survivors that this client confirmed")
            if requested.confirmations and (requested.confirmed & ~survives).any():
                raise UnmaskRefused("a confirmation is by a client that is not among the survivors")
            if len(requested.confirmations) < terms.threshold:
                raise TooFewClients(
                    f"{len(requested.confirmations)} clients confirmed the survivors; the threshold is "
                    f"{terms.threshold}"
                )
            signed = self._survivors_message(membership_bits(state.roster, state.confirmed))
            for index, signature in zip(
                np.flatnonzero(requested.confirmed).tolist(), requested.confirmations, strict=True
            ):
                verify(self._identity_of(state.neighbours[index]), signature, signed)

    def _open(self, data: bytes, stage: Stage) -> Envelope:
        """Decode the expected message, from the server to this client, in this run."""
        if self._state.ended == "answered":
            raise AlreadyAnswered(f"client {self.client} has revealed its shares of this round; it answers no more")
        if self._state.ended == "aborted":
            raise UnexpectedStage(f"client {self.client} has left this round; it answers nothing more")
        envelope = Envelope.decode(data)
        envelope.expect(stage=stage, run=self._run, sender=SERVER, receiver=self.client)
        if self._state.awaits is not stage:
            raise UnexpectedStage(f"got the {stage} message; client {self.client} awaits the {self._state.awaits}")
        return envelope

    def _reply(self, stage: Stage, *body: bytes | memoryview, then: Stage) -> bytes:
        """Build a reply, and store the state that follows from it before the reply is returned."""
        message = b"".join([encode_header(stage, self.terms, self.client, SERVER), *body])
        self._state.awaits = then
        self._save()
        return message

    def _save(self) -> None:
        if self._store is not None:
            self._store(self._state.encode())

    @contextmanager
    def _abort_on_error(self) -> Iterator[None]:
        """Any error inside aborts the round with its secrets deleted."""
        try:
            yield
        except BaseException as reason:
            self._state.end("aborted")
            try:
                self._save()
            except Exception as failed:
                reason.add_note(f"besides, the store failed to keep the end of this round: {failed!r}")
            raise
