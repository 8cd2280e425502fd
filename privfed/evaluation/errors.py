"""The one error of this package: scores or users that cannot be evaluated as given."""


class EvaluationError(ValueError):
    """Arguments that cannot be evaluated; the message states what to do about it."""
