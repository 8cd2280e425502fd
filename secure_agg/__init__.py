"""Secure aggregation as a library. Nothing is built here yet: see CHANGELOG.md for what this release holds."""
