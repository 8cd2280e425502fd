"""The one error of this package: data that cannot be used as given."""


class DataError(ValueError):
    """Missing, malformed or unsuitable data; the message states what to do about it."""
