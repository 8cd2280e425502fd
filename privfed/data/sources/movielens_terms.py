"""On what terms the MovieLens data sets may be used."""

TERMS = (
    "MovieLens data belongs to GroupLens Research at the University of Minnesota: it may be used for "
    "research, must be acknowledged in publications (Harper and Konstan, The MovieLens Datasets: History and "
    "Context, ACM TiiS 5(4), 2015), and may be neither redistributed nor used commercially without their "
    "permission (https://grouplens.org/datasets/movielens)."
)
