"""Fuzzing of the message handlers of nodes and of their server, by parties that hold keys and by strangers."""
