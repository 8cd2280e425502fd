"""User attributes in one form for every layout: gender, age, age_group, occupation."""

import numpy as np
import pandas as pd

AGE_GROUPS = ("Under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+")
_LOWEST_AGE_OF_EACH_NEXT_GROUP = (18, 25, 35, 45, 50, 56)


def demographics(frame: pd.DataFrame) -> pd.DataFrame:
    """The same users, gender and occupation as categories, and the MovieLens-1M bracket of the age beside it.

    Columns that are absent stay absent; any other column is kept as it is.
    """
    frame = frame.copy()
    for column in {"gender", "occupation"} & set(frame.columns):
        frame[column] = pd.Categorical(frame[column].astype(str))
    if "age" in frame.columns and "age_group" not in frame.columns:
        age = pd.to_numeric(frame["age"], errors="coerce")
        group = np.searchsorted(_LOWEST_AGE_OF_EACH_NEXT_GROUP, age, side="right")
        frame["age"] = age
        frame.insert(
            int(frame.columns.get_indexer(pd.Index(["age"]))[0]) + 1,
            "age_group",
            pd.Categorical.from_codes(np.where(age.isna(), -1, group), categories=AGE_GROUPS, ordered=True),
        )
    return frame
