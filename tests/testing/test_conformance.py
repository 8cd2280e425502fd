"""Every registered method keeps the contract of `privfed.testing.check_method`."""

import pytest

from privfed.methods import method, methods
from privfed.testing import CHECKS, check_method


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", sorted(methods()))
def test_every_registered_method(name, check):
    check_method(method(name), only=check)
