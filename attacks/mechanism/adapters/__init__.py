"""Mechanisms of other packages, as functions that `attacks.mechanism` audits.

    from attacks.mechanism import audit_mechanism
    from attacks.mechanism.adapters import flower

    claim = replace(flower.claim(noise_multiplier=2.0, clients=8), neighbours="zero_out")
    print(audit_mechanism(flower.fixed_clipping(noise_multiplier=2.0), claim).text())

`flower`, `nvflare`, `opacus`, `pfl`, `jax_privacy` and `opake` each run the code of the package of that name, which is
imported when a mechanism is made; `claim` is what the package's own accountant says of the same setting. Randomness is
the package's: it follows the global generators that the audit seeds, or a seed that the audit's generator draws.
"""
