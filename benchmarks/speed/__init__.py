"""What rounds, messages and processes cost."""
