"""The one error of this package: data that cannot be used as given."""


class DataError(ValueError):
    """Data that is missing, malformed or unfit for what was asked; the message says what to do about it."""
