"""What this package says about data: an error where they cannot be used as given, a warning where part of them is."""


class DataError(ValueError):
    """Missing, malformed or unsuitable data; the message states what to do about it.

    Attributes:
        command_line: The same sentence in the words of the command line, where they differ.
    """

    def __init__(self, message: str, *, command_line: str | None = None) -> None:
        super().__init__(message)
        self.command_line = message if command_line is None else command_line


class DataWarning(UserWarning):
    """Data that could be used only in part; the message states what was left out and why."""
