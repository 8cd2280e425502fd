"""Attacks on what a run released, from its taps to attack rows."""
