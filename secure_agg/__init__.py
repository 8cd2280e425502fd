"""Secure aggregation as a library: a server learns the sum of many vectors and nothing else about any of them.

numpy and cryptography only. `docs/secure_aggregation.md` states who is trusted with what.
"""
