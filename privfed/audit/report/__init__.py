"""The audit report: its records, what follows from them, and tables of it."""
