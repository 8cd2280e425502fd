"""Bounds on epsilon and estimates of it, from attack scores under randomised inclusion."""

from attacks.empirical.bayesian import bayesian_epsilon
from attacks.empirical.bounds import clopper_pearson_epsilon, gdp_epsilon
from attacks.empirical.ceilings import advantage_ceiling, tpr_ceiling
from attacks.empirical.gaussian import delta_from_mu, epsilon_from_mu, mu_from_epsilon
from attacks.empirical.gaussian_pair import gaussian_pair_epsilon
from attacks.empirical.one_run import count_guesses, one_run_epsilon, one_run_gdp_epsilon
from attacks.empirical.one_shot import one_shot_epsilon, one_shot_lower_bound, placebo_floor
from attacks.empirical.results import (
    CONFIDENCE,
    CanaryCosines,
    CanaryGuesses,
    CredibleBound,
    EpsilonEstimate,
    LowerBound,
    MeasuredEpsilon,
    SecretGuesses,
    TrialCounts,
)
from attacks.empirical.secrets import secrets_epsilon

__all__ = [
    "CONFIDENCE",
    "CanaryCosines",
    "CanaryGuesses",
    "CredibleBound",
    "EpsilonEstimate",
    "LowerBound",
    "MeasuredEpsilon",
    "SecretGuesses",
    "TrialCounts",
    "advantage_ceiling",
    "bayesian_epsilon",
    "clopper_pearson_epsilon",
    "count_guesses",
    "delta_from_mu",
    "epsilon_from_mu",
    "gaussian_pair_epsilon",
    "gdp_epsilon",
    "mu_from_epsilon",
    "one_run_epsilon",
    "one_run_gdp_epsilon",
    "one_shot_epsilon",
    "one_shot_lower_bound",
    "placebo_floor",
    "secrets_epsilon",
    "tpr_ceiling",
]
