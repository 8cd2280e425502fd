"""User attributes in one form for every layout: gender, age, age_group, occupation."""

import numpy as np
import pandas as pd

AGE_GROUPS = ("Under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")
_LOWEST_AGE_OF_LATER_GROUPS = (18, 25, 35, 45, 50, 56)


def demographics(frame: pd.DataFrame) -> pd.DataFrame:
    """The same users, gender and occupation as categories, each age with its MovieLens-1M bracket.

    Columns that are absent stay absent; any other column is kept as it is.
    """
    frame = frame.copy()
    for column in ("gender", "occupation"):
        if column in frame.columns:
            frame[column] = frame[column].astype("string").astype("category")
    if "age" in frame.columns and "age_group" not in frame.columns:
        frame["age"] = pd.to_numeric(frame["age"], errors="coerce")
        frame["age_group"] = pd.cut(
            frame["age"],
            [-np.inf, *_LOWEST_AGE_OF_LATER_GROUPS, np.inf],
            right=False,
            labels=list(AGE_GROUPS),
        )
    return frame
