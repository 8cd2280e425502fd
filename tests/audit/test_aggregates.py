"""Cells against naive statistics over the runs they are made of."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from privfed.audit.aggregates import aggregate, spread
from privfed.audit.report import AuditReport
from tests_audit_fixture import attack_row, guarantee, make_run
