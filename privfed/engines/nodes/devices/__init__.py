"""A federation whose every organisation is one person's device (`device/`): signed messages, terms and masked sums."""
