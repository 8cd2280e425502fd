"""Scores of different users on one scale: uploads differ in length, and only the shape within a user says something."""

import numpy as np

from attacks.view import Scores


def over_own_rms(scores: Scores) -> Scores:
    """Each user's scores over their root mean square; 0 for a user whose scores are all 0."""
    scale = np.sqrt(np.square(scores).mean(axis=1, keepdims=True))
    scaled: Scores = np.divide(scores, scale, out=np.zeros_like(scores), where=scale > 0)
    return scaled


def standardise(scores: Scores) -> Scores:
    """Mean 0 and variance 1 per user; 0 for a user whose scores are all equal."""
    return over_own_rms(scores - scores.mean(axis=1, keepdims=True))
