"""What the ledger counts about evaluation, in one sentence that stands wherever a metric does."""

UNCOUNTED = (
    "Exact evaluation metrics are in no ledger: utility is computed without noise from private held-out data, and no "
    "epsilon covers it, nor the choice of a round, of settings or of a method by it (validation, model selection, "
    "tuning)."
)

COUNTED = (
    "Evaluation metrics are in the ledger: they are read off one noisy sum of everybody's clipped vectors of metrics, "
    "and epsilon covers it together with training. No exact metric was computed for anybody to see. Further runs on "
    "the same people, and a choice among them, are counted by nobody but whoever adds their epsilons up."
)


def about_metrics(*, private: bool) -> str:
    """The sentence for a run whose metrics are noisy and counted, or exact."""
    return COUNTED if private else UNCOUNTED
