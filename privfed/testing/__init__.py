"""`check_method`: the checks that every method passes, native or somebody else's; needs no test framework."""

from privfed.testing.conformance import CHECKS, MethodCheckError, check_method

__all__ = ["CHECKS", "MethodCheckError", "check_method"]
