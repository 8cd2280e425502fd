"""The server of a masked sum: a state machine that takes the clients' messages and returns its own, without a network.

    requests = server.invite(ids)
    while not server.finished:
        for each reply that arrives in time: server.receive(client, reply)
        requests = server.advance()
    server.total

`advance` closes a stage with the clients that have answered; all others have dropped out. The server holds one running
sum, not the inputs. If it fails, it raises the reason and deletes its state; there is no fallback to a less protected
sum.

Sources: Bonawitz et al. 2017, figure 4; Bell et al. 2020.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np

from secure_agg import shamir
from secure_agg.errors import (
    ConfigurationError,
    DuplicateMessage,
    KeyRefused,
    MalformedMessage,
    PartiesAccused,
    SharesRefused,
    SignatureRefused,
    TooFewClients,
    UnexpectedStage,
    WrongParty,
)
from secure_agg.masking import blame, key_derivation
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
    decode_check,
    decode_masked_input,
    decode_signature,
    encode_header,
    membership_bits,
)
from secure_agg.masking.sealed_pairs import open_pair
from secure_agg.masking.terms import BOUND_BYTES, Terms
from secure_agg.primitives.keys import KeyPair, is_canonical_public_key, verify
from secure_agg.primitives.prg import RingElements, add_keystreams, check_threads

Requests = dict[int, bytes]
"""The next message for each remaining client."""


@dataclass(slots=True)
class _Participant:
    """The server's state for one participant."""

    advertisement: Advertisement
    neighbours: tuple[int, ...] = ()
    commitment: bytes = b""
    sealed: dict[int, bytes] = field(default_factory=dict)
    check: bytes = b""
    complaint: Complaint | None = None
    input_signature: bytes = b""
    confirmation: bytes = b""
    requested: tuple[int, ...] = ()
    revealed: dict[int, bytes] = field(default_factory=dict)


class MaskingServer:
    """The server in one round.

    Args:
        terms: proposed terms; clients refuse terms below their requirements.
        min_clients: minimum number of clients in a sum; at least `threshold + 1` in any case.
        directory: identities by client id, for signed terms.
        threads: threads for removing masks.
    """

    def __init__(
        self, terms: Terms, *, min_clients: int = 3, directory: Mapping[int, bytes] | None = None, threads: int = 1
    ) -> None:
        check_threads(threads)
        self.terms = terms
        self._min_clients = max(min_clients, terms.threshold + 1)
        self._directory = directory or {}
        self._threads = threads
        self._awaits: Stage | None = None
        self._replied: set[int] = set()
        self._expected: frozenset[int] = frozenset()
        self._members: dict[int, _Participant] = {}
        self._graph: HararyGraph | None = None
        self._sharers: frozenset[int] = frozenset()
        self._survivors: frozenset[int] = frozenset()
        self._contradicting: set[int] = set()
        self._listed: Bits = np.zeros(0, bool)
        self._confirming = b""
        self._suspects: dict[int, str] = {}
        self._bound = bytes(BOUND_BYTES)
        self._sum: RingElements = terms.ring.zeros(0)
        self._total: RingElements | None = None
        self._ended = False

    @property
    def awaits(self) -> Stage | None:
        """Stage of the message that clients send now, or None before the invitation and after the end."""
        return self._awaits

    @property
    def pending_clients(self) -> frozenset[int]:
        """Clients whose reply of this stage has not arrived."""
        return self._expected - self._replied

    @property
    def finished(self) -> bool:
        """Whether the total is available."""
        return self._total is not None

    @property
    def total(self) -> RingElements:
        """The sum of the survivors' vectors, in the ring.

        Raises:
            UnexpectedStage: the round has not finished.
        """
        if self._total is None:
            raise UnexpectedStage("the total is not available: the round has not finished")
        return self._total

    @property
    def survivors(self) -> tuple[int, ...]:
        """Ids of the clients whose vectors are in the total, rising.

        Raises:
            UnexpectedStage: the round has not finished.
        """
        if self._total is None:
            raise UnexpectedStage("the survivors are not known: the round has not finished")
        return tuple(sorted(self._survivors))

    @property
    def suspects(self) -> Mapping[int, str]:
        """Clients that lied about shares, or may have, and why; they outlive the round."""
        return self._suspects

    def invite(self, clients: Collection[int]) -> Requests:
        """Begin the round: the invitation for each client.

        Raises:
            ConfigurationError: repeated or impossible ids, or too few for the terms.
            UnexpectedStage: the round has begun before.
        """
        if self._awaits is not None or self._ended:
            raise UnexpectedStage("this round has begun; make a new server for the next one")
        invited = frozenset(clients)
        if len(invited) != len(clients) or not all(0 <= client < SERVER for client in invited):
            raise ConfigurationError(f"client ids must be distinct and from 0 to {SERVER - 1}; correct the list")
        if len(invited) < self._min_clients or not self.terms.allows_roster_of(len(invited)):
            raise ConfigurationError(
                f"{len(invited)} clients are invited; this round reveals no sum of fewer than {self._min_clients} and "
                f"has a threshold of {self.terms.threshold}; invite more, or call secure_agg.choose_parameters"
            )
        return self._expect(Stage.ADVERTISEMENT, Stage.INVITATION, dict.fromkeys(sorted(invited), self.terms.encode()))

    def bind(self, digest: bytes) -> None:
        """Set the digest of what is sent with the round, 32 bytes, which clients give to `MaskingClient.mask`.

        It enters all masks and the confirmations. Without a call it is 32 zero bytes.

        Raises:
            ConfigurationError: another length.
            UnexpectedStage: a masked input has arrived, or the round is over.
        """
        if len(digest) != BOUND_BYTES:
            raise ConfigurationError(f"the digest has {len(digest)} bytes; give {BOUND_BYTES}")
        if (
            self._ended
            or (self._awaits or 0) > Stage.MASKED_INPUT
            or (self._awaits is Stage.MASKED_INPUT and self._replied)
        ):
            raise UnexpectedStage("a masked input has arrived, or the round is over; bind a digest before")
        self._bound = bytes(digest)

    def receive(self, sender: int, message: bytes) -> None:
        """Take one client's reply of this stage.

        Args:
            sender: who the transport says it is from.
            message: its bytes.

        Raises:
            MessageRefused: malformed, stale, misdirected, repeated or out of turn; the sum is untouched.
            KeyRefused, SignatureRefused: bad keys, or a signature by another identity; the reply is dropped
                and the round goes on without it.
        """
        if self._awaits is None:
            raise UnexpectedStage("no message is due: the round has not begun, or is over")
        if sender not in self._expected:
            raise WrongParty(f"client {sender} is not expected to send the {self._awaits} message; it is dropped")
        envelope = Envelope.decode(message)
        envelope.expect(stage=self._awaits, run=self.terms.run, sender=sender, receiver=SERVER)
        envelope.expect_round(self.terms.round)
        if sender in self._replied:
            raise DuplicateMessage(f"client {sender} has sent its {self._awaits} message; the second is dropped")
        self._take(self._awaits, sender, envelope.body)
        self._replied.add(sender)

    def advance(self) -> Requests:
        """Close the stage with those who answered, and return the next message for each remaining client.

        Returns:
            Requests: empty once the total is available.

        Raises:
            UnexpectedStage: no stage is open.
            TooFewClients: too few answered for the threshold or the minimum; the round is over and nothing was
                unmasked.
            PartiesAccused: clients lied about shares, see `MaskingClient.check`; likewise.
            SharesRefused: revealed shares do not rebuild what their owner committed to; likewise.
        """
        if self._awaits is None:
            raise UnexpectedStage("no stage is open: the round has not begun, or is over")
        replied = frozenset(self._replied)
        try:
            match self._awaits:
                case Stage.ADVERTISEMENT:
                    return self._send_roster()
                case Stage.SHARES:
                    return self._deliver(replied)
                case Stage.CHECK:
                    return self._go_ahead(replied)
                case Stage.MASKED_INPUT:
                    return self._settle_survivors(replied)
                case Stage.CONFIRMATION:
                    return self._request(replied)
                case _:
                    return self._unmask_total(replied)
        except BaseException:
            self._end()
            raise

    def _take(self, stage: Stage, sender: int, body: memoryview) -> None:
        """Check and store the body of one reply."""
        terms = self.terms
        match stage:
            case Stage.ADVERTISEMENT:
                advertisement = Advertisement.decode(body, terms)
                if not (
                    is_canonical_public_key(advertisement.mask_key)
                    and is_canonical_public_key(advertisement.channel_key)
                ):
                    raise KeyRefused(
                        f"client {sender} advertises a key of low order or not in canonical form; it is left out"
                    )
                if terms.signed:
                    signed = key_derivation.advertisement_message(
                        terms, sender, advertisement.mask_key, advertisement.channel_key
                    )
                    self._verify(sender, advertisement.signature, signed)
                self._members[sender] = _Participant(advertisement)
            case Stage.SHARES:
                member = self._members[sender]
                shares = EncryptedShares.decode(body, len(member.neighbours))
                member.commitment = shares.commitment
                member.sealed = dict(zip(member.neighbours, shares.sealed, strict=True))
            case Stage.CHECK:
                neighbours = len(self._members[sender].neighbours)
                self._take_check(sender, decode_check(body, neighbours, evidence=not terms.neighbours))
            case Stage.MASKED_INPUT:
                elements, signature = decode_masked_input(body, terms)
                if terms.signs_inputs:
                    self._verify(sender, signature, self._input_message())
                self._members[sender].input_signature = signature
                np.add(self._sum, elements, out=self._sum)
            case Stage.CONFIRMATION:
                self._take_confirmation(sender, decode_signature(body, Stage.CONFIRMATION))
            case _:
                member = self._members[sender]
                revealed = RevealedShares.decode(body, len(member.requested)).shares
                for share in revealed:
                    shamir.check_share(share)
                member.revealed = dict(zip(member.requested, revealed, strict=True))

    def _send_roster(self) -> Requests:
        self._members = self._without_repeated_keys()
        ids = np.array(sorted(self._members), np.uint32)
        if len(ids) < self._min_clients or not self.terms.allows_roster_of(len(ids)):
            raise self._too_few(len(ids), len(self._expected), "advertised usable keys")
        self._graph = HararyGraph(self.terms, ids)
        bodies = {}
        for client, member in self._members.items():
            member.neighbours = self._graph.neighbours(client)
            advertised = tuple(self._members[neighbour].advertisement for neighbour in member.neighbours)
            bodies[client] = Roster(ids, advertised).encode()
        return self._expect(Stage.SHARES, Stage.ROSTER, bodies)

    def _deliver(self, replied: frozenset[int]) -> Requests:
        self._sharers = self._with_enough_neighbours(replied)
        if len(self._sharers) < self._min_clients:
            raise self._too_few(len(self._sharers), len(self._members), "shared their secrets with enough neighbours")
        bodies = {}
        self._listed = self._members_in(self._sharers)
        for client in self._sharers:
            neighbours = self._members[client].neighbours
            sealed = tuple(
                self._members[neighbour].sealed[client] for neighbour in neighbours if neighbour in self._sharers
            )
            shared = self._listed if self.terms.signed else membership_bits(neighbours, self._sharers)
            bodies[client] = Delivery(shared, sealed).encode()
        if self.terms.signed:
            return self._expect(Stage.CHECK, Stage.DELIVERY, bodies)
        return self._expect_inputs(Stage.DELIVERY, bodies)

    def _take_check(self, sender: int, check: bytes | Complaint) -> None:
        member = self._members[sender]
        if isinstance(check, bytes):
            self._verify(sender, check, key_derivation.check_message(self._context, self._listed))
            member.check = check
            return
        if (check.accused & ~membership_bits(member.neighbours, self._sharers)).any():
            raise MalformedMessage(f"client {sender} complains about one whose shares it was not sent")
        signed = key_derivation.complaint_message(self._context, sender, check.accused, check.channel_private)
        self._verify(sender, check.signature, signed)
        member.complaint = check

    def _go_ahead(self, replied: frozenset[int]) -> Requests:
        """Name the liars, or tell those who checked to mask with one another; who did not answer has dropped out."""
        complaints = {client: complaint for client in replied if (complaint := self._members[client].complaint)}
        if complaints:
            self._judge(complaints)
        checked = replied - complaints.keys()
        self._sharers = self._with_enough_neighbours(checked)
        if len(self._sharers) < self._min_clients:
            raise self._too_few(len(checked), len(self._members), "checked the shares they were sent")
        self._listed = self._members_in(self._sharers)
        bodies = {}
        for client in self._sharers:
            around = [] if self.terms.neighbours else self._members[client].neighbours
            signatures = tuple(self._members[other].check for other in around if other in self._sharers)
            bodies[client] = GoAhead(self._listed, signatures).encode()
        return self._expect_inputs(Stage.GO_AHEAD, bodies)

    def _judge(self, complaints: Mapping[int, Complaint]) -> None:
        """Name the liars; on a sparse graph, where complaints carry no evidence, only those whom no others explain.

        Raises:
            PartiesAccused: there are any.
        """
        if self.terms.neighbours:
            pairs = [(accused, client) for client, one in complaints.items() for accused in self._accused(client, one)]
            liars = blame.liars(pairs, self._most_liars)
            self._suspects = blame.suspects(pairs, self._most_liars, "lied about a share")
            proof = "more than can be lies concern"
        else:
            liars = frozenset[int]().union(*(self._liars(*complaint) for complaint in sorted(complaints.items())))
            proof = "the evidence is against"
        if liars:
            raise PartiesAccused(
                f"of {len(complaints)} complaints about shares {proof} clients {', '.join(map(str, sorted(liars)))}; "
                "nobody masked an input, so begin anew without them",
                liars,
            )

    def _accused(self, complainer: int, complaint: Complaint) -> list[int]:
        neighbours = self._members[complainer].neighbours
        return [neighbours[index] for index in np.flatnonzero(complaint.accused).tolist()]

    def _liars(self, complainer: int, complaint: Complaint) -> set[int]:
        """Those the complainer accuses, or the complainer if one of them sealed a pair of shares."""
        member = self._members[complainer]
        pair = KeyPair.from_private(complaint.channel_private)
        if pair.public != member.advertisement.channel_key:
            return {complainer}
        accused = self._accused(complainer, complaint)
        return {complainer} if any(self._sealed_well(other, complainer, pair) for other in accused) else set(accused)

    def _sealed_well(self, sender: int, receiver: int, channel_pair: KeyPair) -> bool:
        """Whether the receiver, whose channel pair this is, could open the sender's pair of shares."""
        ours, theirs = self._members[receiver].advertisement, self._members[sender].advertisement
        _, inbound = key_derivation.channel_keys(
            self._context, channel_pair.agree(theirs.channel_key),
            ours=(receiver, channel_pair.public), theirs=(sender, theirs.channel_key),
        )  # fmt: skip
        sealed = self._members[sender].sealed[receiver]
        try:
            open_pair(
                self.terms.suite.aead, inbound, self._context, sealed,
                sender=(sender, theirs.mask_key), receiver=(receiver, ours.mask_key),
            )  # fmt: skip
        except SharesRefused:
            return False
        return True

    def _expect_inputs(self, sent: Stage, bodies: Mapping[int, bytes]) -> Requests:
        self._sum = self.terms.ring.zeros(self.terms.length)
        return self._expect(Stage.MASKED_INPUT, sent, bodies)

    def _settle_survivors(self, replied: frozenset[int]) -> Requests:
        self._survivors = replied
        if len(replied) < self._min_clients:
            raise self._too_few(len(replied), len(self._sharers), "sent their masked input")
        if not self.terms.signed:
            return self._request(replied)
        self._check_rebuildable(replied)
        alive, bodies = self._members_in(replied), {}
        self._confirming = key_derivation.survivors_message(self._context, self._bound, self._listed, alive)
        for client in replied:
            around = self._members[client].neighbours if self.terms.signs_inputs else ()
            signatures = tuple(self._members[other].input_signature for other in around if other in replied)
            bodies[client] = Survivors(alive, signatures).encode()
        return self._expect(Stage.CONFIRMATION, Stage.SURVIVORS, bodies)

    def _take_confirmation(self, sender: int, signature: bytes) -> None:
        # Its input is in the sum. If it was masked under another digest or with other clients, masks do not cancel;
        # on a sparse graph its input was signed, and what it confirms concerns its shares only.
        if not self.terms.signs_inputs:
            self._contradicting.add(sender)
        self._verify(sender, signature, self._confirming)
        self._contradicting.discard(sender)
        self._members[sender].confirmation = signature

    def _request(self, replied: frozenset[int]) -> Requests:
        if self._contradicting:
            named = ", ".join(map(str, sorted(self._contradicting)))
            raise PartiesAccused(
                f"clients {named} confirmed other survivors, or another digest, than this server sent; the round is "
                "over and nothing was unmasked, so begin anew without them",
                self._contradicting,
            )
        self._check_rebuildable(replied)
        dropped = self._sharers - self._survivors
        bodies = {}
        for client in replied:
            member = self._members[client]
            member.requested = tuple(neighbour for neighbour in member.neighbours if neighbour in self._sharers)
            confirmed = replied if self.terms.signed else frozenset()
            bodies[client] = UnmaskRequest(
                membership_bits(member.neighbours, self._survivors),
                membership_bits(member.neighbours, dropped),
                membership_bits(member.neighbours, confirmed)[: len(member.neighbours) if self.terms.signed else 0],
                tuple(self._members[other].confirmation for other in member.neighbours if other in confirmed),
            ).encode()
        return self._expect(Stage.REVEAL, Stage.REQUEST, bodies)

    def _unmask_total(self, replied: frozenset[int]) -> Requests:
        """Rebuild the self mask of each survivor and the mask key of each dropped client, and remove the masks."""
        self._check_rebuildable(replied)
        terms, rebuilt = self.terms, self._rebuild_all()
        # The sum holds every survivor's self mask, to be subtracted. Pairwise masks of two survivors have cancelled; of
        # those with a dropped client the survivor's half remains: added by the lower id, subtracted by the higher.
        plus: list[bytes] = []
        minus: list[bytes] = []
        for client, secret in rebuilt.items():
            if client in self._survivors:
                minus.append(key_derivation.self_mask_key(terms, self._context, secret, client, self._bound))
                continue
            pair = KeyPair.from_private(secret)
            for neighbour in self._members[client].neighbours:
                if neighbour in self._survivors:
                    their_key = self._members[neighbour].advertisement.mask_key
                    mask = key_derivation.pairwise_mask_key(
                        terms, self._context, pair,
                        ours=client, theirs=neighbour, their_key=their_key, bound=self._bound,
                    )  # fmt: skip
                    (minus if neighbour < client else plus).append(mask)
        add_keystreams(self._sum, plus, minus, terms.suite.stream, self._threads)
        self._total = terms.ring.reduce_(self._sum)
        self._end()
        return {}

    def _rebuild_all(self) -> dict[int, bytes]:
        """The secret of each sharer that was asked for; wrong shares are corrected, and suspects are noted.

        Raises:
            SharesRefused: too many of a client's shares are wrong, with the suspects.
        """
        rebuilt: dict[int, bytes] = {}
        lost: dict[int, str] = {}
        wrong: set[tuple[int, int]] = set()
        for client in sorted(self._sharers):
            try:
                rebuilt[client], holders = self._rebuild(client, {holder for _, holder in wrong})
            except SharesRefused:
                lost[client] = self._loss(client)
            else:
                wrong.update((client, holder) for holder in holders)
        self._suspects = self._suspects | blame.suspects(wrong, self._most_liars) | lost
        if lost:
            first = min(lost)
            what = (
                "do not rebuild the self mask it committed to"
                if first in self._survivors
                else "rebuild another key than it advertised"
            )
            raise SharesRefused(f"the revealed shares of client {first} {what}; {lost[first]}", self._suspects)
        return rebuilt

    def _rebuild(self, client: int, distrusted: Collection[int]) -> tuple[bytes, set[int]]:
        """A client's secret from the shares that its neighbours revealed, and the holders of wrong ones.

        Without those of distrusted holders, where enough are left, nearly always suffices and is fast.
        """
        threshold, shares = self.terms.threshold, self._revealed(client)
        holders = self._members[client].neighbours
        trusted = {party: share for party, share in shares.items() if holders[party - 1] not in distrusted}
        used = trusted if len(trusted) >= threshold else shares
        try:
            secret = shamir.reconstruct(used, threshold)
        except SharesRefused:
            secret = b""
        if self._is_secret_of(client, secret):
            others = shares.keys() - used.keys()
            wrong = frozenset(party for party in others if shares[party] != shamir.share_of(party, used, threshold))
        else:
            secret, wrong = shamir.decode(shares, threshold, lambda found: self._is_secret_of(client, found))
        return secret, {holders[party - 1] for party in wrong}

    def _revealed(self, client: int) -> dict[int, bytes]:
        """By position among a client's neighbours, the share of its secret that was revealed."""
        shares = {}
        for party, neighbour in enumerate(self._members[client].neighbours, start=1):
            share = self._members[neighbour].revealed.get(client)
            if share is not None:
                shares[party] = share
        return shares

    def _is_secret_of(self, client: int, secret: bytes) -> bool:
        """Whether this is the seed that a survivor committed to, or the mask key that a dropped client advertised."""
        if not secret:
            return False
        member = self._members[client]
        if client in self._survivors:
            return key_derivation.self_mask_commitment(self._context, secret, client) == member.commitment
        return KeyPair.from_private(secret).public == member.advertisement.mask_key

    def _loss(self, client: int) -> str:
        """Why a client is under suspicion whose secret cannot be rebuilt."""
        shares = len(self._revealed(client))
        spare = (shares - self.terms.threshold) // 2
        return f"either it dealt wrong shares, or more than {spare} of the {shares} clients that revealed them lied"

    @property
    def _most_liars(self) -> int:
        """How many clients around any one may lie: what signed terms allow for, else fewer than the threshold."""
        if self.terms.signed:
            return self.terms.max_corrupt(len(self._settled_graph.ids))
        return self.terms.threshold - 1

    def _without_repeated_keys(self) -> dict[int, _Participant]:
        """Participants whose keys nobody else advertised; the others are indistinguishable, or copied one another."""
        uses: dict[bytes, int] = {}
        for member in self._members.values():
            for key in (member.advertisement.mask_key, member.advertisement.channel_key):
                uses[key] = uses.get(key, 0) + 1
        return {
            client: member
            for client, member in self._members.items()
            if uses[member.advertisement.mask_key] == uses[member.advertisement.channel_key] == 1
        }

    def _with_enough_neighbours(self, sharers: frozenset[int]) -> frozenset[int]:
        """The largest set of sharers in which each has a threshold of neighbours: the others could not be unmasked."""
        # Remove clients with too few neighbours until none is left; each removal lowers the degree of its neighbours.
        threshold = self.terms.threshold
        degree = {client: len(sharers.intersection(self._members[client].neighbours)) for client in sharers}
        pending = [client for client, live in degree.items() if live < threshold]
        removed = set(pending)
        while pending:
            for neighbour in self._members[pending.pop()].neighbours:
                if neighbour in degree and neighbour not in removed:
                    degree[neighbour] -= 1
                    if degree[neighbour] < threshold:
                        removed.add(neighbour)
                        pending.append(neighbour)
        return sharers - removed

    def _check_rebuildable(self, live: frozenset[int]) -> None:
        """Refuse unless every secret that is needed has a threshold of live holders."""
        for client in sorted(self._sharers):
            holders = len(live.intersection(self._members[client].neighbours))
            if holders < self.terms.threshold:
                raise TooFewClients(
                    f"{holders} live neighbours hold shares of client {client} and the threshold is "
                    f"{self.terms.threshold}; the round is over and nothing was unmasked"
                )

    def _too_few(self, count: int, total: int, action: str) -> TooFewClients:
        return TooFewClients(
            f"{count} of {total} clients {action}; a sum needs {self._min_clients} and a threshold of "
            f"{self.terms.threshold}; the round is over and nothing was unmasked"
        )

    def _verify(self, sender: int, signature: bytes, message: bytes) -> None:
        if sender not in self._directory:
            raise SignatureRefused(f"the directory knows no client {sender}; add its identity before inviting it")
        verify(self._directory[sender], signature, message)

    @property
    def _context(self) -> bytes:
        return self._settled_graph.context

    @property
    def _settled_graph(self) -> HararyGraph:
        if self._graph is None:
            raise UnexpectedStage("the roster is not settled yet")
        return self._graph

    def _members_in(self, chosen: frozenset[int]) -> Bits:
        """One flag per participant: whether it is among the chosen."""
        return membership_bits(self._settled_graph.ids, chosen)

    def _input_message(self) -> bytes:
        return key_derivation.input_message(self._context, self._bound, self._listed)

    def _expect(self, awaits: Stage, sent: Stage, bodies: Mapping[int, bytes]) -> Requests:
        """Begin the next stage and address its messages."""
        self._awaits, self._replied, self._expected = awaits, set(), frozenset(bodies)
        return {
            client: encode_header(sent, self.terms, SERVER, client) + body for client, body in sorted(bodies.items())
        }

    def _end(self) -> None:
        """Delete everything but the result."""
        self._ended, self._awaits = True, None
        self._expected, self._replied = frozenset(), set()
        self._members, self._sum = {}, self.terms.ring.zeros(0)
