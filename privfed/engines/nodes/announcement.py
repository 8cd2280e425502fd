"""From an announced experiment to the side of it that a process runs: the server, or the clients of a node's users.

Where the experiment is a simulation, keys follow from its seed and the results are those of the simulation in one
process. Otherwise every party draws a secret root of its own, which never leaves its folder, and shares one public key,
from which initial parameters come.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Collection
from functools import cached_property
from typing import Self

import numpy as np
from jaxtyping import Int64
from pydantic import BaseModel, ConfigDict, Field, model_validator

from privfed.engines.cohorts import members
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.federation_file import FederationFile
from privfed.engines.nodes.node_data import NodeData, renumbered
from privfed.engines.nodes.open_histories import require_open_histories
from privfed.federation import Streams
from privfed.privacy.forecast import FinalQuery
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig
from privfed.setup.evaluation_query import final_queries
from privfed.setup.refusals import refuse_over_nodes
from privfed.setup.sizing import size

RUN_BYTES = 16
ROOT_BYTES = 32
_NUMBER = re.compile("0|[1-9][0-9]{0,11}")


class Announcement(BaseModel):
    """What a server tells nodes about a run before they take part.

    Attributes:
        run: 32 hexadecimal digits that no other run has.
        federation: digest of the federation file.
        config: of the experiment.
        seeded: whether users' keys follow from the experiment's seed: a simulation over processes.
        public: 64 hexadecimal digits, the root of the public key; empty where all follows from the seed.
        population: users of the federation, donors among them.
        items: size of the catalogue.
        queries: largest number of queries of one cohort.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str = Field(pattern=r"^[0-9a-f]{32}$")
    federation: str = Field(pattern=r"^[0-9a-f]{64}$")
    config: ExperimentConfig
    seeded: bool
    public: str = Field("", pattern=r"^([0-9a-f]{64})?$")
    population: int = Field(ge=1)
    items: int = Field(ge=1)
    queries: int = Field(ge=1)

    @model_validator(mode="after")
    def _keys_come_from_somewhere(self) -> Self:
        if self.seeded == bool(self.public):
            raise ValueError("a run has either a seed for all keys or a public key; give the one that fits `seeded`")
        return self

    @model_validator(mode="after")
    def _method_is_installed(self) -> Self:
        # A name such as file.py:METHOD would have every node run a file that the server chooses.
        if ".py" in self.config.method_name:
            raise ValueError("a run over nodes trains a method that is installed at every party, and none in a file")
        return self

    @model_validator(mode="after")
    def _plan_leaves_nothing_open(self) -> Self:
        # Each side would otherwise choose noise by itself, and a node could not say beforehand what it agrees to.
        if self.config.privacy.target is not None:
            raise ValueError(
                f"the plan {self.config.privacy.name!r} leaves its noise or clip norm open; the server chooses both "
                "before it announces a run"
            )
        return self

    @model_validator(mode="after")
    def _donors_are_users(self) -> Self:
        donors = self.config.split.donors
        if not isinstance(donors, tuple):
            return self
        numbers = [int(name) if _NUMBER.fullmatch(name) else -1 for name in donors]
        if not numbers or numbers != sorted(set(numbers)) or numbers[0] < 0 or numbers[-1] >= self.population:
            raise ValueError(
                f"donors of a run over nodes are named by their numbers in the federation, ascending and below "
                f"{self.population}: correct split.donors"
            )
        if len(numbers) == self.population:
            raise ValueError("everybody in the federation is a donor, so there is nobody to ask: name fewer")
        return self

    @classmethod
    def from_config(
        cls,
        config: ExperimentConfig,
        data: NodeData,
        federation: FederationFile,
        *,
        seeded: bool,
        run: str | None = None,
    ) -> "Announcement":
        """The announcement of a new run.

        Raises:
            NodesError: the server has not the open histories of the donors whom the run names.
        """
        require_open_histories(config, data)
        config = size(config, data.parts).config
        public = "" if seeded else secrets.token_hex(ROOT_BYTES)
        draft = cls(
            run=run or secrets.token_hex(RUN_BYTES), federation=federation.digest, config=config, seeded=seeded,
            public=public, population=data.population, items=data.items, queries=1,
        )  # fmt: skip
        return draft.model_copy(
            update={"queries": queries_per_cohort(draft.assemble(data, secrets.token_bytes(ROOT_BYTES)))}
        )

    @property
    def final(self) -> list[FinalQuery]:
        """What is asked after training, each in a round of its own: the measurement, where the plan covers it."""
        return final_queries(self.config, self.config.privacy)

    @property
    def rounds(self) -> int:
        """Rounds in which anything is asked."""
        return self.config.rounds + len(self.final)

    @cached_property
    def donors(self) -> Int64[np.ndarray, " donors"]:
        """Numbers in the federation of those who opened their history and take no part, ascending."""
        donors = self.config.split.donors
        return np.array(donors if isinstance(donors, tuple) else (), dtype=str).astype(np.int64)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything announced.

        Masks are bound to it: organisations that were told of other donors, or of less noise, open no sum together.
        """
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    @property
    def n_users(self) -> int:
        """Users of the run: those of the federation who are no donors, numbered anew in the same order."""
        return self.population - len(self.donors)

    def cohort_streams(self) -> Streams:
        """Random numbers that everybody can draw, by which members of a cohort are chosen."""
        return (
            Streams.from_seed(self.config.seed) if self.seeded else Streams(bytes.fromhex(self.public), simulated=True)
        )

    def expected_users(self, federation: FederationFile, round: int | None, seats: Collection[int]) -> float:
        """Number of the organisations' users who are in a sum over them, from the file and the sampling rule alone.

        Args:
            federation: of the run.
            round: whose cohort is added up; None where it is everybody, as for metrics.
            seats: of the organisations.
        """
        everybody = np.sort(np.concatenate([np.empty(0, np.int64), *map(federation.users, seats)]))
        hosted, sampling = renumbered(everybody, self.donors), self.config.privacy.sampling
        if round is None or sampling.kind == "all":
            return len(hosted)
        if sampling.kind == "poisson":
            return sampling.rate * len(hosted)
        chosen = members(sampling, self.cohort_streams(), self.n_users, round).numpy()
        return int(np.isin(chosen, hosted).sum())

    def assemble(self, data: NodeData, root: bytes, salt: str = "", entropy: bytes = b"") -> Assembly:
        """The experiment over what one party knows; the other party's side of it has nobody's data.

        Args:
            data: of the party.
            root: 32 secret bytes of the party; not looked at where keys follow from the seed.
            salt: hexadecimal digits that the party drew when it joined the run, and keeps with its state.
            entropy: of the party's process, into which keys of whatever hides data are mixed.

        Raises:
            NodesError: the experiment cannot be run over nodes, or is of other data than the party's.
            ValueError: the experiment refuses its own configuration.
        """
        if (data.population, data.items) != (self.population, self.items):
            raise NodesError(
                f"the run is over {self.population} users and {self.items} items, and this party knows of "
                f"{data.population} and {data.items}; give all parties the same catalogue and user numbers"
            )
        refuse_over_nodes(self.config)
        if data.parts.donors is None:
            data = data.without(self.donors)
        if self.seeded:
            return Assembly(self.config, data.parts, hosted=data.users)
        # Noise is addressed by round and query, so two runs under one key would have the same: every run has its own.
        # The name of the run is the server's word; the salt is the party's, so that no server can name a run again.
        secret = hmac.digest(root, bytes.fromhex(self.run + salt), "sha256")
        keys = Streams.of_party(secret, bytes.fromhex(self.public), entropy)
        return Assembly(self.config, data.parts, keys, hosted=data.users)


def queries_per_cohort(assembly: Assembly) -> int:
    """Largest number of queries that a run makes of one cohort."""
    training, config = assembly.registered.training, assembly.config
    queries = len(training.program(assembly.server)) + training.extra_queries(config.settings())
    return max([queries, 1, *(final.count for final in final_queries(config, config.privacy))])
