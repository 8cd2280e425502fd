"""The device's side of the privacy layer: clip, then noise on what is about to leave.

It reads the same `PrivacyPlan` from which the `Guarantee` is derived, so code and claim cannot drift apart.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from privfed.compute.tiles import TILE, tile_size, tiles
from privfed.contracts import Schema, account_of, refreshes_of, share_of, upload_bytes
from privfed.federation import Call, Purpose, Streams
from privfed.federation.grid import device_grid, release_upload_
from privfed.guards.norm_accounts import NormAccounts
from privfed.guards.quantising import UploadCode, coded_upload_bytes
from privfed.guards.ring_code import KEY_WORDS, RingCode
from privfed.guards.tier_weights import weights_of
from privfed.privacy.errors import PrivacyError
from privfed.privacy.mechanisms.base import Noise
from privfed.privacy.plan import PrivacyPlan
from privfed.updates import ClientUpdates
from secure_agg.encoding import RingElements

BLOCKS_PER_QUERY = 65_536
_ROUNDED_UP = 1 + 2.0**-20
"""Float32 uploads err by less."""
_NOISED_AT_ONCE, _NUMBERS_AT_ONCE = 4, 1 << 16
"""Of a tile of 16, clients whose noise is drawn together: the words of four item tables stay in the cache. Of small
blocks so many numbers are."""


class BrokenUploadError(PrivacyError):
    """An update that no mechanism could make safe."""


@dataclass(slots=True)
class ClipCounts:
    """Numbers of uploads and of those that the clip shortened; the experimenter's view, never released."""

    uploads: int = 0
    clipped: int = 0

    @property
    def fraction(self) -> float | None:
        """Share of uploads whose norm was above the clip norm."""
        return self.clipped / self.uploads if self.uploads else None


class ClientGuard:
    """Clips and noises the updates of the clients a process hosts.

    Args:
        plan: the run's privacy plan.
        streams: the clients' own addressed randomness.
        tier: of all these clients, where their party knows it; None has each client's drawn, or as the plan names it.
        accounts: what left these clients before; None begins anew.

    Attributes:
        accounts: of releases that share one.
    """

    def __init__(
        self, plan: PrivacyPlan, streams: Streams, tier: str | None = None, accounts: NormAccounts | None = None
    ) -> None:
        self.plan, self._streams, self._tier = plan, streams, tier
        self.accounts = NormAccounts() if accounts is None else accounts
        self.counts = ClipCounts()
        self._code = None if plan.upload_bits is None else UploadCode(plan.upload_bits)
        adaptive = plan.mechanism.adaptive_clip
        self._counted_over_clip = 1.0 if adaptive is None else adaptive.counted_over_clip

    @property
    def rewrites(self) -> bool:
        """True where every upload gets its own noise or is rounded, so it must be materialised."""
        return self.plan.mechanism.noise is not None or self._code is not None

    @property
    def sums_precisely(self) -> bool:
        """True where noise is sized for the exact sum of the uploads, which their float64 sum has to be close to."""
        return self.plan.mechanism.server_noise_multiplier is not None

    def refuse_broken(self, updates: ClientUpdates, call: Call) -> None:
        """Stop before an upload with NaN or infinity leaves: no clip bounds it and no noise hides it.

        Raises:
            BrokenUploadError: some client's update is not finite.
        """
        if not updates.finite():
            raise BrokenUploadError(
                f"training diverged: an update of round {call.round + 1} holds NaN or infinity; lower the learning "
                f"rates of the method and start again"
            )

    def clip_(self, updates: ClientUpdates, clip_norm: float | None = None) -> int:
        """Scale every client's real blocks, in place, to a joint norm within the clip norm, or the query's share of it.

        Where people have budgets of their own, what is clipped is then multiplied by the weight of each one's tier.

        Args:
            updates: of the clients that this process hosts.
            clip_norm: announced by the server, where the plan adapts it; otherwise the plan's holds.

        Returns:
            Number of clients that were within the clip norm already, or within what a plan that adapts it counts.
        """
        clip = self.plan.mechanism.clip
        if clip is None:
            return len(updates)
        if clip.per_block is None:
            norms, bounds = updates.norms(clip.order), [clip_norm or clip.norm]  # [clients], one bound for all
        else:
            norms = updates.norm_powers(2).sqrt()  # [clients, real blocks], against a bound for each block
            real = [name for name, block in updates.schema.items() if block.kind == "real"]
            bounds = clip.bounds(real)
        # Noise is sized for a whole clip norm, so a query that may use a share s of its square is clipped to sqrt(s).
        bound = torch.tensor(bounds, dtype=torch.float64).mul_(math.sqrt(share_of(updates.schema)))
        account, whole = self._account(updates.schema), bound
        if account is not None:
            # What left before leaves so much of the norm of a year.
            bound = bound * self.accounts.left(account, updates.clients).sqrt()
        factors = shrink_factors(norms, bound)
        if account is not None:
            squares = (norms * factors / whole).square() * _ROUNDED_UP
            self.accounts.record_sent(account, updates.clients, torch.minimum(squares, (bound / whole).square()))
        if self.plan.tiers is not None:
            weights = self.weights(updates.clients)
            factors = factors * (weights if factors.dim() == 1 else weights.unsqueeze(1))
        updates.scale_(factors)
        over = norms > bound
        clipped = int((over if over.dim() == 1 else over.any(1)).sum())
        self.counts.uploads += len(updates)
        self.counts.clipped += clipped
        counted = self._counted_over_clip
        return len(updates) - clipped if counted == 1.0 else int((norms <= bound * counted).sum())

    def _account(self, schema: Schema) -> str | None:
        """The account that a query is counted under; None where it stands by itself."""
        clip = self.plan.mechanism.clip
        if refreshes_of(schema) == 1 or clip is None or clip.per_block is not None:
            return None
        return account_of(schema)

    def weights(self, users: Int64[Tensor, " users"]) -> Float[Tensor, " users"]:
        """What the clipped uploads of some users count in a sum; the same in every round."""
        return weights_of(self.plan.tiers, self._streams, users, self._tier)

    def protect(
        self,
        updates: ClientUpdates,
        call: Call,
        positions: Int64[Tensor, " n"],
        out: dict[str, Tensor] | None = None,
        steps: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """What the clients at `positions` put on the wire, dense `[n, *shape]`, noise and rounding included.

        With `out`, buffers of that shape, values are written there. With `steps`, under a plan that rounds uploads, the
        step of every real block `[n]` is put there.
        """
        uploads = updates.materialise(positions, out)
        if self.rewrites and len(call.schema) > BLOCKS_PER_QUERY:
            raise PrivacyError(f"a query has {len(call.schema)} blocks; noise has addresses for {BLOCKS_PER_QUERY}")
        if self.plan.mechanism.noise is not None:
            self._add_noise_(uploads, updates, call, positions, self.plan.mechanism.noise)
        if self._code is not None:
            steps = {} if steps is None else steps
            steps |= self._round_(uploads, call, positions, self._code)
        return uploads

    def _add_noise_(
        self, uploads: Mapping[str, Tensor], updates: ClientUpdates, call: Call, positions: Tensor, noise: Noise
    ) -> None:
        """Round every client's values to its noise's grid and add its own noise, in place."""
        users = call.clients[positions].tolist()
        touched = updates.touched(positions) if noise.coordinates == "touched" else None
        sample = self._streams.laplace_steps if noise.law == "laplace" else self._streams.normal_steps
        for index, (name, block) in enumerate(call.schema.items()):
            if block.kind != "real":
                continue
            address = call.query_id * BLOCKS_PER_QUERY + index
            # Noise acts on weight x value, so on the values themselves its scale is divided by the weight.
            flat, grid = uploads[name].view(len(users), block.size), device_grid(noise.scale / block.weight)
            for some in tiles(len(users), _at_once(block.size)):
                # [clients, block.size] whole steps, addressed by user: chunking cannot change anybody's noise.
                steps = sample(Purpose.NOISE, call.round, address, users[some], block.size, grid.ratio)
                if touched is not None:
                    steps.mul_(touched[name][some].view(steps.shape))
                release_upload_(flat[some], steps, grid)

    def _round_(
        self, uploads: Mapping[str, Tensor], call: Call, positions: Tensor, code: UploadCode
    ) -> dict[str, Tensor]:
        """Round every client's real blocks to whole steps, in place, with its own randomness; returns steps `[n]`."""
        users, steps_by_block = call.clients[positions].tolist(), dict[str, Tensor]()
        for index, (name, block) in enumerate(call.schema.items()):
            if block.kind != "real":
                continue
            address = call.query_id * BLOCKS_PER_QUERY + index
            flat = uploads[name].view(len(users), block.size)
            steps_by_block[name] = steps = code.steps_of(flat)
            for some in tiles(len(users), _at_once(block.size)):
                ring_elements = self._streams.words(Purpose.ROUNDING, call.round, address, users[some], block.size)
                flat[some].copy_(code.whole(flat[some], steps[some], ring_elements)).mul_(steps[some].unsqueeze(1))
        return steps_by_block

    def ring_elements(
        self, code: RingCode, uploads: Mapping[str, Tensor], call: Call, positions: Tensor
    ) -> list[RingElements]:
        """Ring elements `[length]` of each of the clients at `positions`, rounded and noised under its own key.

        Args:
            code: of the query.
            uploads: their dense blocks `[n, *shape]`.
            call: the exchange.
            positions: of these clients in the call.
        """
        users, uploads = call.clients[positions].tolist(), {name: values.cpu() for name, values in uploads.items()}
        keys = self._streams.words(Purpose.SHARE, call.round, call.query_id, users, KEY_WORDS if code.randomised else 0)
        weights = self.weights(call.clients[positions])
        if (account := self._account(code.schema)) is not None:
            # Rounding keeps to the norm that was counted, so that a year of rounded vectors has a bound, too.
            weights = weights * self.accounts.sent(account, call.clients[positions]).sqrt()
        return [code.encode(uploads, at, keys[at].tobytes(), weight) for at, weight in enumerate(weights.tolist())]

    def upload_bytes(self, updates: ClientUpdates) -> int:
        """Bytes these clients upload: dense where noise or a ring covers every coordinate, else as represented.

        Where the plan rounds uploads, `coded_upload_bytes`.
        """
        mechanism, masking = self.plan.mechanism, self.plan.mechanism.masking
        if masking is not None and masking.held_blocks:
            sizes = torch.tensor([masking.upload_bytes({name: block}) for name, block in updates.schema.items()])
            return int((updates.holds().sum(0) * sizes).sum())
        if masking is not None:
            return masking.upload_bytes(updates.schema) * len(updates)
        if self._code is not None:
            return coded_upload_bytes(updates, self._code.bits, dense=mechanism.dense)
        if mechanism.dense:
            return upload_bytes(updates.schema) * len(updates)
        return updates.nbytes


def _at_once(size: int) -> int:
    """Clients whose noise on a block of so many numbers is drawn together."""
    return max(_NOISED_AT_ONCE * tile_size() // TILE, _NUMBERS_AT_ONCE // size)


def shrink_factors(norms: Float[Tensor, "*any"], bound: Float[Tensor, "*some"]) -> Float[Tensor, "*any"]:
    """Factors of at most 1 that bring every norm to its bound or below, in float32 arithmetic too."""
    # What a norm errs by, and what float32 makes of products when they are written out, stays below the bound.
    factors = (bound * (1 - 2.0**-22) / norms.clamp(min=1e-300)).clamp(max=1.0)
    # A float32 product may round up; shrinking by a few units in the last place keeps the norm below.
    factors = torch.where(factors < 1.0, factors * (1 - 2.0**-22), factors)
    # Below float32's normal range a factor loses its digits; such an upload is all but zero, so it becomes zero.
    return torch.where(factors < torch.finfo(torch.float32).tiny, 0.0, factors)
