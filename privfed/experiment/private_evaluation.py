"""Choosing and measuring inside the budget, over a simulation: rounds of their own, after training.

Where a grid of settings is given, a round asks for the metrics of every candidate on the validation part, and the best
one is kept; the last round measures it (`privfed.engines.final_queries`).
"""

from dataclasses import dataclass

from privfed.engines.final_queries import FinalQueryServer, measurement, with_candidates
from privfed.engines.simulation import Simulation
from privfed.engines.witness import Witness
from privfed.evaluation import EvaluationResult, PrivateChoice
from privfed.experiment.release_record import ReleaseRecord
from privfed.federation import Server
from privfed.privacy import PlanError
from privfed.setup.assembly import Assembly
from privfed.setup.evaluation_query import CHOICE, choice_vector, final_queries


@dataclass(frozen=True, slots=True)
class FinalQueryRunner:
    """Where the queries after training go.

    Attributes:
        assembly: the assembled run.
        simulation: of it.
        witness: who sees every query; None where nobody does.
    """

    assembly: Assembly
    simulation: Simulation
    witness: Witness | None

    def _ask(self, asking: FinalQueryServer, round: int) -> FinalQueryServer:
        """Have the round take place.

        Raises:
            PlanError: too few clients took part.
        """
        server: Server = asking if self.witness is None else self.witness.server(asking)
        self.simulation.observers.clear()
        self.simulation.run(server, round)
        if asking.sums is None:
            raise PlanError(
                "the round that measures quality had too few clients for the plan "
                f"{self.assembly.config.privacy.name!r}, so nothing was measured: sample more clients a "
                "round, or set evaluation.private = false"
            )
        return asking

    def measured(self, round: int) -> EvaluationResult:
        """Quality of the trained model."""
        result = self._ask(measurement(self.assembly), round).result()
        assert result is not None
        return result

    def chosen(self, releases: ReleaseRecord, round: int) -> PrivateChoice:
        """The best candidate of the grid, whose public parameters the server then holds."""
        config = self.assembly.config
        servers = [releases.server(self.assembly, settings) for settings in config.evaluation.candidates]
        message = with_candidates([one.public() for one in servers])
        query = final_queries(config, config.privacy)[0]
        asked = self._ask(FinalQueryServer(self.assembly, CHOICE, query, message), round)
        assert asked.sums is not None
        values = choice_vector(config).values(asked.sums, asked.deviation)
        best = max(range(len(values)), key=lambda number: values[number].value)
        self.assembly.server.load(servers[best].state())
        return PrivateChoice(
            candidates=tuple(config.evaluation.candidates),
            values=values,
            chosen=best,
            mu=config.evaluation.selection_mu,
        )
