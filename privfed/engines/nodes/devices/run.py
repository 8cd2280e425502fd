"""One run over people's devices: what it asks, who is asked, and what may be published of it."""

import secrets
from dataclasses import dataclass
from pathlib import Path

from privfed.engines.nodes.announcement import ROOT_BYTES, Announcement
from privfed.engines.nodes.channel import Incident
from privfed.engines.nodes.devices.device_federation import DeviceFederation
from privfed.engines.nodes.devices.terms import PRIVATE_GRAM, STEPS, DeviceQuery, announced_terms
from privfed.engines.nodes.errors import NodesError
from privfed.engines.nodes.federation_file import SERVER_SEAT
from privfed.engines.nodes.node_data import NodeData
from privfed.engines.nodes.party import Party
from privfed.engines.nodes.transport import Transport
from privfed.guards import ServerGuard
from privfed.methods.private_gram import PrivateGramConfig, PrivateGramServer
from privfed.privacy import Guarantee, Ledger
from privfed.privacy.mechanisms.distributed_gaussian import DistributedGaussian
from privfed.setup.assembly import Assembly
from privfed.setup.config import ExperimentConfig


@dataclass(frozen=True, slots=True, eq=False)
class DevicesResult:
    """The result of a run over devices.

    Attributes:
        assembly: the experiment, whose server is trained.
        guarantee: what can be claimed.
        joined: number of devices that agreed to take part.
        summed: number of devices in every opened sum.
        incidents: replies that were not used.
    """

    assembly: Assembly
    guarantee: Guarantee
    joined: int
    summed: tuple[int, ...]
    incidents: list[Incident]


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRun:
    """A run that is ready to be announced.

    Attributes:
        party: the server.
        assembly: the experiment over the catalogue; nobody's data are in it.
        guard: the server's side of the privacy layer.
        queries: that it makes.
    """

    party: Party
    assembly: Assembly
    guard: ServerGuard
    queries: list[DeviceQuery]

    @classmethod
    def prepare(cls, config: ExperimentConfig, data: NodeData, party: Party, ledger: Path) -> "DeviceRun":
        """Set up a run.

        Args:
            config: of the experiment.
            data: what the server knows: a catalogue, and how many people there are.
            party: the server.
            ledger: file that is written.

        Raises:
            NodesError: devices cannot take part in it.
        """
        require_devices(party)
        _require_fixed_queries(config)
        announced = Announcement.from_config(config, data, party.federation, seeded=False)
        assembly = announced.assemble(data, secrets.token_bytes(ROOT_BYTES))
        plan, server = announced.config.privacy, assembly.server
        guard = ServerGuard(plan, Ledger(plan, announced.n_users, ledger, run=announced.run), assembly.streams)
        diagonal = isinstance(server, PrivateGramServer) and server.config.histories != "short"
        steps = {block: step for step, block in STEPS[announced.config.method_name].items()}
        queries = []
        for planned in assembly.registered.training.program(server):
            code = guard.code(planned.schema)
            if code is None:
                raise NodesError(f"the plan {plan.name!r} masks no uploads: give distributed-gaussian")
            queries.append(DeviceQuery(steps[next(iter(planned.schema))], code, diagonal))
        return cls(party, assembly, guard, queries)

    def train(self, transport: Transport, timeout: float) -> DevicesResult:
        """Announce the run to whoever is connected, and make its queries.

        Args:
            transport: to the devices.
            timeout: seconds in which they answer.

        Raises:
            TooFewClientsError: too few agreed or stayed; what was opened before stays opened and counted.
        """
        plan, cohort = self.guard.plan, len(self.party.federation.organisations)
        terms = announced_terms(plan.mechanism, self.queries, delta=plan.delta, cohort=cohort)
        federation = DeviceFederation(transport, self.party, self.guard, terms, self.queries, timeout)
        federation.announce()
        self.assembly.server.round(federation, 0)
        guarantee = self.guard.ledger.guarantee(seeded=False)
        said = self.assembly.registered.disclosure.side_disclosures(self.assembly.config.settings())
        guarantee = guarantee.model_copy(update={"statements": [*guarantee.statements, *said]})
        return DevicesResult(
            self.assembly, guarantee, len(federation.joined), tuple(federation.summed), federation.incidents
        )


def require_devices(party: Party) -> None:
    """Refuse a party that is no server, or a federation in which an organisation is not one person.

    Raises:
        NodesError: naming the first that is not.
    """
    federation = party.federation
    if party.seat != SERVER_SEAT:
        raise NodesError(f"this is the folder of {federation.name_of(party.seat)}: give the server's")
    allowed, kind = federation.mechanisms, DistributedGaussian.model_fields["kind"].default
    if allowed is not None and kind not in allowed:
        raise NodesError(f"the federation file allows {', '.join(allowed)}, and devices take part under {kind}")
    for seat, organisation in enumerate(federation.organisations):
        if organisation.users != str(seat):
            raise NodesError(
                f"{organisation.name} hosts the users {organisation.users}, and in a federation of devices every "
                f'organisation is one person, numbered as it stands in the file: write users = "{seat}"'
            )
    if federation.population != len(federation.organisations):
        raise NodesError(
            f"population = {federation.population} of {len(federation.organisations)} devices: write one for each"
        )


def _require_fixed_queries(config: ExperimentConfig) -> None:
    """Refuse settings under which a later query depends on what an earlier one released: devices agree beforehand."""
    if config.fidelity == "two-servers":
        raise NodesError(
            "devices send their vectors under masks, and fidelity = 'two-servers' asks for others: leave it out"
        )
    settings = config.settings()
    if config.method_name not in STEPS:
        raise NodesError(f"devices compute {' or '.join(STEPS)}, and the run is of {config.method_name}")
    if config.method_name != PRIVATE_GRAM:
        return
    assert isinstance(settings, PrivateGramConfig)
    if settings.histories == "auto" or settings.min_items != 0:
        raise NodesError(
            "devices agree to every query beforehand, so none may depend on the first sum: set histories to long or "
            "short, and min_items to 0"
        )
