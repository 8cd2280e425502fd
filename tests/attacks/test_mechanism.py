"""Planted faults in small mechanisms are found, right mechanisms pass, and a report says what it rests on."""

import functools
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer

from attacks.empirical import mu_from_epsilon
from attacks.mechanism import Claim, audit, audit_mechanism, module_release, neighbouring_inputs, step_release
from attacks.mechanism.replay import noise_law
from benchmarks.privacy import historical_faults as shipped


def _examples():
    path = Path(__file__).with_name("mechanism_examples.py")
    spec = importlib.util.spec_from_file_location("mechanism_examples", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


m = _examples()
EPSILON = 2.0
CLAIM = Claim(EPSILON, m.DELTA)
VALUES = np.random.default_rng(0).normal(size=(8, 3))
CATEGORIES = np.arange(10) % 5
BY_USER = {"values": VALUES, "user": np.arange(8) // 2}
FLAGGED = {"values": VALUES, "present": np.ones(8, bool)}


def audited(release, claim=CLAIM, **options):
    options = {"trials": 200, "budget_seconds": 1e6, **({} if "inputs" in options else {"shape": (3,)}), **options}
    return audit_mechanism(release, claim, **options)


def verdicts(report):
    return {finding.subject: finding.verdict for finding in report.findings}


FAULTS = {
    "noise on the wrong tensor": (m.noise_on_the_wrong_tensor, {}, "unnoised outputs"),
    "clip per record, ten records per user": (m.gaussian_sum, {"records": 10}, "influence"),
    "clip after averaging": (m.clipped_after_averaging, {}, "influence"),
    "the same seed in every call": (m.seeded_once, {}, "unnoised outputs"),
    "few seeds": (m.few_seeds, {}, "fresh noise"),
    "one noise for all coordinates": (m.noise_shared_by_coordinates, {}, "unnoised outputs"),
    "not a number passes the clip": (m.not_a_number_passes, {}, "extreme values"),
    "no clip": (m.unclipped, {}, "influence"),
    "a count beside the sum": (m.count_released, {}, "unnoised outputs"),
    "absent users count": (m.absent_users_counted, {"inputs": FLAGGED}, "absent users"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_where_it_is(name):
    make, options, subject = FAULTS[name]
    report = audited(make(EPSILON), **options)
    assert report.violated
    assert verdicts(report)[subject] == "violation"


@pytest.mark.parametrize("fault", shipped.FAULTS, ids=lambda fault: fault.subject)
def test_a_fault_that_was_shipped_is_found_where_it_is(fault):
    assert verdicts(shipped.audited(fault, trials=200))[fault.finding] == "violation"


def test_an_absurd_scale_is_measured_and_not_only_rejected():
    bound = shipped.audited(shipped.FAULTS[-1], trials=1_000).epsilon
    assert 0.85 * shipped.REPORTED < bound <= shipped.REPORTED


def test_a_value_that_passes_now_and_then_is_seen_among_many_noised_ones():
    def release(rows, generator):
        total = m.clip(rows).sum(axis=0)
        return total if generator.random() < 0.2 else total + generator.normal(0, 4, len(total))

    assert "equals" in audited(release, trials=400).finding("influence").sentence


@pytest.mark.parametrize("make", [m.gaussian_sum, m.randomness_of_its_own])
def test_rounds_that_are_counted_once_are_found(make):
    report = audited(make(8.0), Claim(8.0, m.DELTA, steps=100), trials=100)
    assert verdicts(report)["steps"] == "violation"


def test_rounds_that_are_counted_pass():
    assert not audited(m.gaussian_sum(EPSILON / 10), Claim(EPSILON, m.DELTA, steps=100), trials=100).violated


def test_rounds_of_laplace_noise_are_composed():
    report = audited(m.laplace_sum(EPSILON), Claim(EPSILON, steps=5), trials=100)
    assert verdicts(report)["steps"] == "violation"
    assert 4 * EPSILON < report.epsilon <= 5 * EPSILON


def test_bits_of_textbook_noise_break_a_claim_about_machines_alone():
    machine = audited(m.laplace_sum(1.0), Claim(1.0, arithmetic="machine"), trials=400)
    real = audited(m.laplace_sum(1.0), Claim(1.0), trials=400)
    assert verdicts(machine)["floating-point numbers"] == "violation"
    assert verdicts(real)["floating-point numbers"] == "beyond the claim"
    assert not real.violated
    assert not audited(
        m.discrete_gaussian_counts(1.0), Claim(1.0, m.DELTA, arithmetic="machine"), inputs=CATEGORIES
    ).violated


@pytest.mark.parametrize("neighbours", ["add_or_remove", "zero_out", "replace"])
def test_one_call_bounds_epsilon_where_a_record_has_many_coordinates(neighbours):
    claim = Claim(EPSILON, m.DELTA, neighbours=neighbours)
    wrong, right = (
        audited(make(EPSILON), claim, shape=(192,), trials=100, extremes=False).finding("one call")
        for make in (lambda _: shipped.noised_value_by_value, lambda epsilon: m.gaussian_sum(epsilon / 2))
    )
    assert wrong.verdict == "violation"
    assert right.verdict != "violation"


@pytest.mark.parametrize("width", [1, 8, 64, 1024])
def test_wide_noise_of_few_calls_is_known_for_what_it_is(width):
    generator = np.random.default_rng(5)
    assert noise_law(generator.normal(size=(200, width))) == "gaussian"
    assert noise_law(generator.laplace(size=(200, width))) == "laplace"


def one_call(release, claim):
    return audited(release, claim, shape=(1024,), users=3, trials=100, extremes=False).finding("one call")


def test_one_call_sees_more_of_gaussian_noise_where_earlier_calls_showed_it(monkeypatch):
    claim, wide = Claim(8.0, m.DELTA), m.gaussian_sum(8.0)
    through_gaussian = one_call(wide, claim)
    monkeypatch.setattr(audit, "_moves_gaussian_noise", lambda finding: False)
    through_lines = one_call(wide, claim)
    assert "GDP" in through_gaussian.method
    assert "mu-GDP (Gaussian noise, no sampling)" in through_gaussian.method
    assert "GDP" not in through_lines.method
    assert through_lines.evidence == through_gaussian.evidence
    assert 0 < through_lines.epsilon < through_gaussian.epsilon <= claim.epsilon


@pytest.mark.parametrize(
    ("release", "claim"),
    [
        (m.sampled_gaussian_sum(8.0), Claim(8.0, m.DELTA)),
        (m.laplace_sum(8.0), Claim(8.0, m.DELTA)),
        (m.gaussian_sum(8.0), Claim(8.0)),
    ],
    ids=["sampled", "Laplace", "no delta"],
)
def test_one_call_assumes_no_gaussian_where_none_was_shown(release, claim):
    assert "GDP" not in one_call(release, claim).method


def test_batch_statistics_in_the_state_are_found():
    rows = torch.from_numpy(VALUES).float()
    report = audited(
        module_release(torch.nn.BatchNorm1d(3)), Claim(EPSILON, m.DELTA, neighbours="replace"), inputs=rows, min_users=3
    )
    assert verdicts(report)["unnoised outputs"] == "violation"
    assert "running_mean" in report.finding("unnoised outputs").sentence


def test_a_plain_optimiser_step_is_found_and_a_private_one_passes():
    rows = torch.from_numpy(VALUES).float()
    plain = step_release(functools.partial(_linear, 0.0), _mean_loss)
    private = step_release(functools.partial(_linear, 2 * m.gaussian_scale(EPSILON)), _mean_loss)
    claim = Claim(EPSILON, m.DELTA, neighbours="zero_out")
    assert audited(plain, claim, inputs=rows[:3], extremes=False, trials=100).violated
    assert not audited(private, claim, inputs=rows[:3], extremes=False, trials=100).violated


def test_the_step_of_opacus_keeps_its_claim_once_and_not_twice():
    def make():
        module = GradSampleModule(torch.nn.Linear(3, 1, bias=False), loss_reduction="sum")
        plain = torch.optim.SGD(module.parameters(), lr=1.0)
        scale = 1 / mu_from_epsilon(EPSILON, m.DELTA)
        return module, DPOptimizer(plain, noise_multiplier=scale, max_grad_norm=1.0, expected_batch_size=8)

    release, options = step_release(make, lambda module, rows: module(rows).sum()), {"extremes": False, "min_users": 1}
    inputs = torch.from_numpy(VALUES[:3]).float()
    once = audited(release, CLAIM, inputs=inputs, trials=100, **options)
    assert 0.75 * EPSILON < once.epsilon <= EPSILON
    assert not once.violated
    often = audited(release, Claim(EPSILON, m.DELTA, steps=2), inputs=inputs[:1], trials=100, **options)
    assert verdicts(often)["steps"] == "violation"


class _Noisy(torch.optim.SGD):
    """Adds noise to gradients that the loss has bounded."""

    def __init__(self, parameters, noise):
        super().__init__(parameters, lr=1.0)
        self.noise = noise

    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad += self.noise * torch.randn_like(parameter)
        super().step()


def _linear(noise):
    module = torch.nn.Linear(3, 1, bias=False)
    return module, _Noisy(module.parameters(), noise)


def _mean_loss(module, rows):
    return module(rows / rows.norm(dim=1, keepdim=True).clamp_min(1)).sum()


RIGHT = {
    "gaussian": lambda e: (m.gaussian_sum(e), Claim(e, m.DELTA), {}),
    "laplace": lambda e: (m.laplace_sum(e), Claim(e), {}),
    "histogram": lambda e: (m.laplace_histogram(e), Claim(e), {"inputs": CATEGORIES}),
    "discrete gaussian": lambda e: (m.discrete_gaussian_counts(e), Claim(e, m.DELTA), {"inputs": CATEGORIES}),
    "randomised response": lambda e: (
        m.randomised_response(e),
        Claim(e, neighbours="replace"),
        {"inputs": np.array([0, 1, 1])},
    ),
    "sampled": lambda e: (m.sampled_gaussian_sum(e), Claim(e, m.DELTA), {}),
    "public denominator": lambda e: (m.gaussian_mean(e, 8), Claim(e, m.DELTA), {}),
    "torch": lambda e: (m.torch_gaussian_sum(e), Claim(e, m.DELTA), {"inputs": torch.from_numpy(VALUES).float()}),
    "global randomness": lambda e: (m.global_randomness(e), Claim(e, m.DELTA), {}),
    "sum of local noises": lambda e: (
        m.sum_of_local_laplace(e),
        Claim(e, neighbours="zero_out"),
        {"inputs": VALUES, "min_users": 4},
    ),
    "bounded users": lambda e: (m.bounded_users(e), Claim(e, m.DELTA), {"inputs": BY_USER}),
}


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_mechanism_raises_no_alarm(name, epsilon):
    release, claim, options = RIGHT[name](epsilon)
    report = audited(release, claim, trials=100, **options)
    assert not report.violated, report.text()
    assert report.epsilon <= epsilon


def test_the_bound_comes_close_to_what_is_true():
    report = audited(m.laplace_sum(EPSILON), Claim(EPSILON), trials=2_000)
    assert 0.9 * EPSILON < report.epsilon <= EPSILON


def test_a_report_is_the_same_every_time_and_leaves_global_randomness_alone():
    np.random.seed(5)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    reports = [audited(m.unclipped(EPSILON)) for _ in range(2)]
    assert reports[0] == reports[1]
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    assert json.loads(json.dumps(reports[0].to_json(), allow_nan=False))["violated"]
    assert "Nothing clips" in reports[0].text()


def test_a_finding_is_reproduced_by_its_two_lines():
    release = shipped.noised_value_by_value
    finding = audited(release).finding("influence")
    names = {"neighbouring_inputs": neighbouring_inputs, "Claim": Claim, "release": release, "numpy": np}
    first, second = finding.reproduction.splitlines()
    exec(first, names)
    without, member = eval(second, names)
    assert np.linalg.norm(np.mean(member, axis=0) - np.mean(without, axis=0)) > 1


def test_small_company_is_left_out_where_nothing_is_promised_for_it():
    pairs = neighbouring_inputs(CLAIM, shape=(3,), min_users=3)
    assert min(len(without) for without, _ in pairs.values()) == 3


def test_a_claim_is_read_from_text():
    claim = Claim.parse("epsilon=2, delta=1e-5, neighbours=replace, steps=10, arithmetic=machine")
    assert claim == Claim(2.0, 1e-5, "replace", steps=10, arithmetic="machine")
    for wrong in ("delta=1e-5", "epsilon=x", "epsilon=1,neighbours=none", "epsilon=1,unknown=2", "epsilon=-1"):
        with pytest.raises(ValueError, match="pass"):
            Claim.parse(wrong)


def test_what_refuses_its_example_is_one_sentence():
    def refuses(rows, generator):
        raise TypeError("no")

    with pytest.raises(ValueError, match="refused the example"):
        audited(refuses)
    with pytest.raises(ValueError, match="no numbers"):
        audited(lambda rows, generator: "nothing")
