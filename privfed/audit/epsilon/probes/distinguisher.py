"""How two worlds are told apart by what was released: features, Fisher's discriminant, a cut.

Of every block a release is read along the input and across it: noise that coordinates have in common cancels in a
combination of the two, as noise that releases have in common cancels between them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from privfed.audit.epsilon.probes.engines import Released
from privfed.audit.epsilon.probes.inputs import Candidate
from privfed.audit.epsilon.probes.uploads import sign
from privfed.compute.linear_algebra import solve_positive_of

_RIDGE = 1e-12
_SURE = 3.0
"""Standard errors by which a gap must differ from the expected one to be believed."""

Draws = Float64[Tensor, "_ features"]


def features(released: Released, units: Tensor, candidate: Candidate, rounds: Sequence[int]) -> list[Tensor]:
    """Of every query `[rounds, units, features]`, signs undone.

    Args:
        released: by an engine.
        units: uploads or slots with this input.
        candidate: the input.
        rounds: their numbers.
    """
    values = []
    for query, (blocks, pattern) in enumerate(zip(released, candidate.patterns, strict=True)):
        axes = [(name, torch.stack(_axes(pattern[name]))) for name in blocks]
        signs = torch.tensor([sign(t, query) for t in rounds], dtype=torch.float64).view(-1, 1, 1)
        values.append(torch.cat([blocks[name][:, units] @ axis.T for name, axis in axes], 2) * signs)
    return values


def expected(candidate: Candidate) -> list[Float64[Tensor, " features"]]:
    """The input itself, as the features of every query."""
    return [
        torch.cat([torch.stack(_axes(values)) @ values for values in pattern.values()])
        for pattern in candidate.patterns
    ]


def _axes(values: Float64[Tensor, " size"]) -> tuple[Float64[Tensor, " size"], Float64[Tensor, " size"]]:
    """Unit vectors along the values, or along ones where they are zero, and across them."""
    along = values if bool(values.any()) else torch.ones_like(values)
    along = along / along.norm()
    ramp = torch.arange(1.0, len(values) + 1, dtype=torch.float64)
    across = ramp - (ramp @ along) * along
    length = float(across.norm())
    return along, across / length if length > 1e-9 else torch.zeros_like(across)


def independent_draws(of_queries: Sequence[Tensor], *, together: bool, rounds: int = 1) -> Draws:
    """Features of independent draws: of one release each, or of all queries of so many rounds.

    Args:
        of_queries: `[rounds, units, features]` of every query.
        together: whether all queries are one draw.
        rounds: of one draw.
    """
    if not together:
        return torch.cat([query.flatten(0, 1) for query in of_queries])
    whole = torch.cat(list(of_queries), 2)
    groups, units = whole.shape[0] // rounds, whole.shape[1]
    grouped = whole[: groups * rounds].view(groups, rounds, units, -1)
    return grouped.permute(0, 2, 1, 3).flatten(0, 1).flatten(1)


@dataclass(frozen=True, slots=True, eq=False)
class BoundedStatistic:
    """The mean over features of how far each has come from absent to present, between 0 and 1.

    For Laplace noise that is the log-ratio of the two densities; near 1 all coordinates lie beyond the input.

    Attributes:
        absent: means where the input is absent, or its opposite.
        gap: from there to the means where it is present; features without one are left out.
    """

    absent: Float64[Tensor, " features"]
    gap: Float64[Tensor, " features"]

    def scores(self, draws: Draws) -> Float64[Tensor, " _"]:
        """0 where all is absent and 1 where all is present."""
        differs = self.gap.abs() > 0
        return ((draws - self.absent)[:, differs] / self.gap[differs]).clamp(0, 1).mean(1)


@dataclass(frozen=True, slots=True, eq=False)
class LinearStatistic:
    """A linear statistic and where it is cut.

    Attributes:
        weights: of the features.
        absent: mean where the input is absent, or its opposite.
        present: mean where it is there.
    """

    weights: Float64[Tensor, " features"]
    absent: float
    present: float

    def scores(self, draws: Draws) -> Float64[Tensor, " _"]:
        """0 where the input is absent and 1 where it is present, on average."""
        scale = max(self.present - self.absent, 1e-300)
        return (draws @ self.weights - self.absent) / scale


def fitted(present: Draws, absent: Draws, noise: Draws, gap: Float64[Tensor, " features"]) -> LinearStatistic:
    """Fisher's discriminant.

    Args:
        present: draws with the input.
        absent: draws with its opposite, or without it.
        noise: centred draws, of which the covariance is taken.
        gap: the difference of the means that honest code gives; another is believed where it is sure.
    """
    one, other = present.mean(0), absent.mean(0)
    variance, gap = noise.square().mean(0), believed(present, absent, noise, gap)
    covariance = noise.T @ noise / len(noise)
    ridge = _RIDGE * float(variance.max().clamp(min=1e-12))
    matrix = covariance + ridge * torch.eye(len(gap), dtype=torch.float64)
    weights = solve_positive_of(matrix.unsqueeze(0), gap.unsqueeze(0))[0]
    middle = float((one + other) @ weights) / 2
    half = float(gap @ weights) / 2
    return LinearStatistic(weights, middle - half, middle + half)


def believed(
    present: Draws, absent: Draws, noise: Draws, gap: Float64[Tensor, " features"]
) -> Float64[Tensor, " features"]:
    """The difference of the means that honest code gives, or the one that was seen where it is surely another."""
    seen = present.mean(0) - absent.mean(0)
    error = (noise.square().mean(0) * (1 / len(present) + 1 / len(absent))).sqrt()
    # Rounding to a grid or to float32 moves noise-free features a little, and is no finding.
    return torch.where((seen - gap).abs() > _SURE * error + 1e-3 * gap.abs(), seen, gap)


def bounded(present: Draws, absent: Draws, noise: Draws, gap: Float64[Tensor, " features"]) -> BoundedStatistic:
    """The statistic that fits Laplace noise, with the arguments of `fitted`."""
    gap = believed(present, absent, noise, gap)
    gap = torch.where(gap.abs() > 1e-6, gap, 0.0)
    middle = (present.mean(0) + absent.mean(0)) / 2
    return BoundedStatistic(middle - gap / 2, gap)


def separation(present: Draws, absent: Draws, gap: Float64[Tensor, " features"]) -> tuple[float, float]:
    """Distance of two worlds along the expected gap in standard deviations, and its standard error."""
    one, other = present @ gap, absent @ gap
    spread = float(((one.var() + other.var()) / 2).sqrt().clamp(min=1e-12))
    distance = float(one.mean() - other.mean()) / spread
    n = len(one)
    return distance, (2 / n + distance**2 / (4 * n)) ** 0.5


def centred(groups: Sequence[Draws]) -> Draws:
    """Draws of several worlds, each about its own mean."""
    return torch.cat([draws - draws.mean(0) for draws in groups])
