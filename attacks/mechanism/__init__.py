"""Audit of anybody's mechanism: from a function that releases something to a bound on epsilon and what breaks it.

    from attacks.mechanism import Claim, audit_mechanism

    def release(rows, generator):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        clipped = rows / np.maximum(norms, 1)
        return clipped.sum(axis=0) / len(rows) + generator.normal(0, 2 / len(rows), rows.shape[1])

    print(audit_mechanism(release, Claim(epsilon=2, delta=1e-5)).text())

Neighbouring inputs are searched on some calls and measured on others. Two kinds of bounds: Clopper and Pearson's from
error rates, which assumes nothing, and one from replays of the same randomness on both inputs, which needs noise of a
known law and sees any epsilon. `module_release` and `step_release` turn a module and an optimiser's step into a
mechanism. It says what it cannot see; no finding is no evidence of privacy.
"""

from attacks.mechanism.audit import ALPHA, audit_mechanism, neighbouring_inputs
from attacks.mechanism.claim import Claim
from attacks.mechanism.findings import Finding, MechanismReport
from attacks.mechanism.training import module_release, step_release

__all__ = [
    "ALPHA",
    "Claim",
    "Finding",
    "MechanismReport",
    "audit_mechanism",
    "module_release",
    "neighbouring_inputs",
    "step_release",
]
