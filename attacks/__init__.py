"""Attacks and empirical audits as pure functions of what an adversary saw."""
