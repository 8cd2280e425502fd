"""Federated autoencoders: per-client clipping next to Opacus and torch.func, and rounds at FedDAE's published widths.

    python -m benchmarks.peers.vae

Clipping: one local step of 256 clients of a one-layer model (latent 32), with the same rows, dropout and latent draws
for all three: gradient of every client, its norm, and the sum of the clipped gradients. Rounds: everybody takes part,
10 local steps, hidden (768, 512), latent 256. CPU-seconds of one thread; every case runs in a process of its own.
Nothing here is asserted: compare rows of one run, on one machine.
"""

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from opacus.grad_sample import GradSampleModule
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks import harness
from privfed.contracts import Block
from privfed.data import SplitSpec, load, split
from privfed.experiment import Experiment
from privfed.federation import Call, Streams
from privfed.methods import ClientData
from privfed.methods.shared.vae import OneEncoder, SharedLayers, train
from privfed.methods.shared.vae_clients import LocalRound, UserRows, uploaded
from privfed.methods.shared.vae_config import VAEConfig
from privfed.setup.config import ExperimentConfig, TapConfig

CLIENTS, LATENT, CLIP, BETA_ROUND = 256, 32, 1.0, 50
PUBLISHED = {"hidden": [768, 512], "latent": 256, "local_steps": 10, "local_lr": 1e-4, "server_lr": 1e-3}
ROUNDS: list[tuple[str, str, dict[str, Any]]] = [
    ("fedvae", "ml-100k", {}),
    ("feddae", "ml-100k", {}),
    ("feddae", "ml-100k", {"local_encoder": "sparse_first_layer", "personal_optimiser": "sgd", "personal_lr": 1e-4}),
    ("feddae", "ml-100k", {"upload_local_encoder": True}),
    ("fedvae", "ml-1m", {}),
    ("feddae", "ml-1m", {}),
]
CLIPPING = ["low rank", "opacus GradSampleModule", "torch.func vmap"]


class OneLayer(nn.Module):
    """The one-layer model as a torch module: input, latent draw -> (logits, KL)."""

    def __init__(self, n_items: int, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(n_items, 2 * LATENT), nn.Linear(LATENT, n_items)
        with torch.no_grad():
            self.encoder.weight.copy_(weights["encoder.0.weight"].T)
            self.encoder.bias.copy_(weights["encoder.0.bias"])
            self.decoder.weight.copy_(weights["decoder.0.weight"])
            self.decoder.bias.copy_(weights["decoder.0.bias"])

    def forward(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and KL of a batch."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        kl = 0.5 * (mean**2 + log_variance.exp() - log_variance - 1).sum(1)
        return self.decoder(mean + (0.5 * log_variance).exp() * noise), kl


def losses(out: tuple[Tensor, Tensor], rows: Tensor, beta: float) -> Tensor:
    """The loss of every client."""
    logits, kl = out
    return -(rows * torch.log_softmax(logits, 1)).sum(1) + beta * kl


def clipped_sum(gradients: list[Tensor]) -> Tensor:
    """Norms of stacked gradients, from which the clipped sum is taken."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
    factors = (CLIP / norms).clamp(max=1)
    for g in gradients:
        torch.einsum("n,n...->...", factors, g)
    return norms


def clipping(data: str, repeats: int) -> list[dict[str, object]]:
    """Three ways to clip per client, taking turns: CPU-seconds of a pass, and how far their norms agree."""
    rows = UserRows(ClientData.from_split(split(load(data), SplitSpec()), "train").positives)
    config = VAEConfig(latent=LATENT, local_lr=1.0)
    architecture, users, streams = config.architecture(rows.n_items), torch.arange(CLIENTS), Streams.from_seed(0)
    unit = torch.rand(architecture.size, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = architecture.initial(unit, "torch")
    schema = {name: Block(tuple(value.shape)) for name, value in weights.items()}
    call = Call(BETA_ROUND, 0, "train", 0, users, streams, schema)
    local = LocalRound.from_call(config, rows.select(users), call, torch.float32)
    x, noise, beta = local.inputs.dense()[:, 0], local.noise[:, 0], local.beta
    ones = (x.new_zeros(x.shape)).index_put_((local.rows.owner, local.rows.items), torch.tensor(1.0))

    sums = {name: torch.zeros(block.shape, dtype=torch.float64) for name, block in schema.items()}

    def low_rank() -> Tensor:
        shared = SharedLayers(architecture, weights, local.coefficients, local.inputs)
        gate = OneEncoder(CLIENTS, torch.float32)
        train(shared.encoder(), gate, shared.decoder(), local.rows, local.noise, local.scale, beta)
        updates = uploaded(architecture, call, shared.changes())
        norms = updates.norms(2)
        updates.scale_((CLIP / norms).clamp(max=1))
        updates.add_to(sums)
        return norms

    model = OneLayer(rows.n_items, weights)
    sampled = GradSampleModule(OneLayer(rows.n_items, weights), loss_reduction="sum")
    parameters: dict[str, Tensor] = dict(model.named_parameters())

    def opacus() -> Tensor:
        sampled.zero_grad()
        losses(sampled(x, noise), ones, beta).sum().backward()
        return clipped_sum([p.grad_sample for p in sampled.parameters()])

    def one_loss(p: dict[str, Tensor], x: Tensor, noise: Tensor, row: Tensor) -> Tensor:
        out: tuple[Tensor, Tensor] = functional_call(model, p, (x.unsqueeze(0), noise.unsqueeze(0)))
        return losses(out, row.unsqueeze(0), beta)[0]

    per_client = vmap(grad(one_loss), in_dims=(None, 0, 0, 0))

    def functional() -> Tensor:
        return clipped_sum(list(per_client(parameters, x, noise, ones).values()))

    ways: list[Callable[[], Tensor]] = [low_rank, opacus, functional]
    norms = [way().detach() for way in ways]
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(repeats):
        for way, spent in zip(ways, seconds, strict=True):
            started = time.process_time()
            way()
            spent.append(time.process_time() - started)
    medians = [statistics.median(spent) for spent in seconds]
    return [
        {
            "way": name,
            "cpu_s_median": round(median, 5),
            "cpu_s_least": round(min(spent), 5),
            "times_low_rank": round(median / medians[0], 1),
            "times_low_rank_by_least": round(min(spent) / min(seconds[0]), 1),
            "largest_relative_norm_difference": float(((norm - norms[0]) / norms[0]).abs().max()),
        }
        for name, median, spent, norm in zip(CLIPPING, medians, seconds, norms, strict=True)
    ]


def rounds(case: int) -> dict[str, object]:
    """CPU-seconds of a round, and peak memory."""
    name, which, settings = ROUNDS[case]
    config = ExperimentConfig(
        method={"name": name, **PUBLISHED, **settings},
        rounds=4 if which == "ml-100k" else 2,
        evaluate_every=1000,
        taps=TapConfig(places=()),
    )
    interactions = load(which)
    loaded = harness.peak_mib()
    experiment = Experiment.on(config, interactions)
    clock = [time.process_time()]
    experiment.run(progress=lambda t, evaluated: clock.append(time.process_time()), parts=())  # noqa: ARG005
    seconds = [after - before for before, after in pairwise(clock)]
    return {
        "method": name,
        "data": which,
        "clients": experiment.n_users,
        "settings": settings,
        "cpu_s_per_round": round(statistics.median(seconds[1:]), 2),
        "peak_rss_mb": round(harness.peak_mib()),
        "rss_after_loading_mb": round(loaded),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run every case in a process of its own."""
    parser = harness.parser(__file__, __doc__, repeats=25)
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = harness.parse(parser, arguments)
    if options.case is not None:
        warnings.simplefilter("ignore")
        rows = clipping("ml-100k", options.repeats) if options.case < 0 else [rounds(options.case)]
        print(json.dumps({"rows": rows}))
        return
    record = harness.Record("vae", options, {"clipping": [], "rounds": []}, anew=True)
    for case in range(-1, len(ROUNDS)):
        words = ("--case", case, "--repeats", options.repeats)
        found = harness.succeeded(harness.child("benchmarks.peers.vae", *words))["rows"]
        part = "clipping" if case < 0 else "rounds"
        record.put([*record.results[part], *found], part)


if __name__ == "__main__":
    main()
