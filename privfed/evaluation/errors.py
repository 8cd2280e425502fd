"""The one error of this package: scores or users that cannot be evaluated as given."""


class EvaluationError(ValueError):
    """What was given cannot be evaluated; the message says what to do about it."""
