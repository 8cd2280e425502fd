"""Secure aggregation as a library: numpy and cryptography only."""
