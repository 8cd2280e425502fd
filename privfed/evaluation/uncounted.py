"""What no ledger counts about evaluation, in one sentence that stands wherever a metric does."""

UNCOUNTED = (
    "Exact evaluation metrics are in no ledger: utility is computed without noise from private held-out data, and no "
    "epsilon covers it, nor the choice of a round, of settings or of a method by it (validation, model selection, "
    "tuning)."
)
