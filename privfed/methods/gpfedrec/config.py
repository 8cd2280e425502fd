"""Settings of GPFedRec."""

from typing import Literal, Self

from pydantic import Field, model_validator

from privfed.methods.gpfedrec.given_graphs import HISTORIES, RANDOM, HistoryGraph, RandomGraph
from privfed.methods.gpfedrec.graph import Metric, Precision, Thinning
from privfed.methods.method import MethodConfig

ScoreFunction = Literal["perceptron", "pfedrec", "fedmf", "fedrecon"]
Start = Literal["neighbours", "everybody"]


class GPFedRecConfig(MethodConfig):
    """Settings; defaults follow the paper's best on ML-100K with the graph signed as its eq. 3 says.

    Rates and scale were chosen on the validation parts of six catalogues (`benchmarks.quality.defaults`).
    """

    dim: int = Field(32, ge=1, description="width of user and item vectors")
    hidden: tuple[int, ...] = Field((32, 16, 8), description="hidden widths of the private perceptron")
    lr: float = Field(0.1, gt=0, description="learning rate of the perceptron")
    eta: float = Field(20.0, gt=1, description="user lr = lr (eta - 1), item lr = lr (eta x items - 1)")
    reg: float = Field(0.5, ge=0, description="weight of the pull towards the neighbours' mean table")
    negatives: int = Field(4, ge=1, description="distinct negatives per positive, redrawn every round")
    batch_size: int = Field(256, ge=1, description="local samples per step")
    score_function: ScoreFunction = Field(
        "perceptron",
        description="private score function: perceptron (GPFedRec), or that of pfedrec (a linear layer), fedmf (a user "
        "vector) or fedrecon (one that is rebuilt every round), whose item tables are then mixed by the graph "
        "(GraphAgg as a plug-in)",
    )
    recon_lr: float = Field(2.0, gt=0, description="learning rate of fedrecon's user vector while it is rebuilt")
    recon_epochs: int = Field(10, ge=1, description="passes over the samples that rebuild fedrecon's user vector")
    graph: Metric | RandomGraph | HistoryGraph | None = Field(
        "similarity",
        description="similarity (eq. 3), distance (as released), or null for the plain mean; erdos-renyi, regular, "
        "watts-strogatz and barabasi-albert are random; cosine, euclidean, jaccard and pearson compare histories, and "
        "all of them are sent for it",
    )
    density: float = Field(0.5, gt=0, le=1, description="share of pairs joined by a random graph or one of histories")
    start: Start = Field(
        "neighbours",
        description="table that clients start from: neighbours, the mean of personal tables, or everybody, the plain "
        "mean of uploads (GPFedRec without its initialisation)",
    )
    gamma: float = Field(1.0, ge=0, description="threshold = gamma x mean of the graph metric")
    min_neighbours: int = Field(
        5, ge=0, description="fewest other users a personal table may average (k-anonymity); 0 as released"
    )
    max_neighbours: int | None = Field(
        None, ge=1, description="most other users a personal table averages (neighbour sampling); null for all of them"
    )
    thinning: Thinning = Field(
        "random", description="which max_neighbours remain: a random draw at every refresh, or the nearest"
    )
    sketch: int | None = Field(
        None, ge=16, description="numbers of a random projection that the graph is made from; null for the whole tables"
    )
    precision: Precision = Field(
        "float32", description="of the products that the graph is made from; bfloat16 where the processor has it"
    )
    refresh_every: int = Field(1, ge=1, description="rounds between graph refreshes (light variant: > 1)")
    initial_scale: float = Field(0.1, gt=0, description="standard deviation of initial user and item vectors")

    @property
    def reads_histories(self) -> bool:
        """Whether the graph is made from histories, which the server then reads."""
        return self.graph in HISTORIES

    @model_validator(mode="after")
    def _one_saving(self) -> Self:
        if self.sketch is not None and self.precision != "float32":
            raise ValueError(
                f"sketch = {self.sketch} and precision = {self.precision} are two ways to make the graph cheaper: "
                "choose one of them"
            )
        return self

    @model_validator(mode="after")
    def _thins_graphs_of_tables(self) -> Self:
        if self.max_neighbours is not None and self.graph in RANDOM | HISTORIES:
            raise ValueError(
                f"max_neighbours = {self.max_neighbours} thins a graph of item tables, and graph is {self.graph!r}: "
                f"lower density instead"
            )
        return self

    @model_validator(mode="after")
    def _thinning_leaves_enough(self) -> Self:
        if self.max_neighbours is not None and self.max_neighbours < self.min_neighbours:
            raise ValueError(
                f"max_neighbours is {self.max_neighbours}, below min_neighbours {self.min_neighbours}, so thinning "
                f"would undo the rule that no target averages fewer; raise the one or lower the other"
            )
        return self
