"""The audit: a grid of runs, what attacks recovered from them, and one honest report."""
