"""Measured epsilons: inclusion bits, canaries, and probes of the mechanism, each with the claim it is compared with."""
