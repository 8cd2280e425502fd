"""mu and rho beside epsilon: what they are where all noise is Gaussian, and that they are nowhere else."""

import math

import pytest

from privfed.privacy.accounting import account
from privfed.privacy.closed_forms import gaussian_epsilon
from privfed.privacy.composition import Composition, Releases
from privfed.privacy.events import Event, Gaussian, Laplace, SampledGaussian, SharedAccount
from privfed.privacy.gaussian_dp import GaussianDp

DELTA = 1e-5


def composed(*releases: Releases, reasons: tuple[str, ...] = ()) -> GaussianDp | None:
    return GaussianDp.from_composition(Composition(releases, reasons))


def test_it_says_the_same_as_the_accountant_that_reports_epsilon() -> None:
    composition = Composition(
        (Releases(Gaussian(noise_multiplier=2.0), 3), Releases(Gaussian(noise_multiplier=5.0), 1))
    )
    found = GaussianDp.from_composition(composition)
    assert found is not None
    assert found.mu == pytest.approx(math.sqrt(3 / 4 + 1 / 25))
    assert found.rho == pytest.approx(found.mu**2 / 2)
    assert gaussian_epsilon(found.mu, DELTA) == pytest.approx(account(composition.event(), DELTA).epsilon, rel=1e-3)


def test_a_year_under_one_account_counts_once() -> None:
    whole = Gaussian(noise_multiplier=4.0)
    assert composed(Releases(SharedAccount(name="gram", queries=12, whole=whole), 1)) == GaussianDp(0.25)


def test_nothing_released_is_mu_of_zero() -> None:
    assert composed() == GaussianDp(0.0)


@pytest.mark.parametrize(
    "event", [Laplace(scale_over_sensitivity=1.0), SampledGaussian(noise_multiplier=1.0, rate=0.1, steps=2)]
)
def test_other_noise_has_none(event: Event) -> None:
    assert composed(Releases(event, 1), Releases(Gaussian(noise_multiplier=1.0), 1)) is None  # type: ignore[arg-type]


def test_sampling_and_what_nothing_bounds_have_none() -> None:
    assert composed(Releases(Gaussian(noise_multiplier=1.0), 1, rate=0.1)) is None
    assert composed(Releases(Gaussian(noise_multiplier=1.0), 1), reasons=("a block left exactly",)) is None
