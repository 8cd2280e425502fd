"""A run over people's own devices: what its server recorded, and what every device counted for itself is not here.

Nobody's history is in the folder, so quality and attacks are in no record of it.
"""

import os
from pathlib import Path

from privfed.audit.report import formatting
from privfed.audit.report.records import GuaranteeRow
from privfed.dossier.errors import DossierError
from privfed.dossier.evidence import MU_OF_NOTHING, MU_OF_OTHERS, Datum, Evidence, LedgerHead, cited
from privfed.dossier.ledgers import read_ledger
from privfed.dossier.reading import read
from privfed.dossier.sources.run import plan_words, releases_of, require_borne_out
from privfed.experiment.folder import CHARGES, DEVICES, FORMAT, GUARANTEE, DevicesRecord
from privfed.privacy import PlanError
from privfed.privacy.gaussian_dp import GaussianDp


def devices_evidence(folder: Path) -> Evidence:
    """What the folder of a finished run over devices says.

    Raises:
        DossierError: it is damaged, was aborted, or its guarantee is not what its ledger bears out.
    """
    file = read(folder, DEVICES)
    record = file.record(DevicesRecord)
    if record.format != FORMAT:
        raise DossierError(f"{folder} was written in format {record.format}, and {FORMAT} is read: use that version")
    if record.ended is None or not os.path.lexists(folder / GUARANTEE):
        raise DossierError(
            f"the run in {folder} was aborted and published nothing, though what its ledger names was opened: name it "
            "with --past"
        )
    guarantee, charges = read(folder, GUARANTEE), read(folder, CHARGES)
    ledger, claim = read_ledger(charges), guarantee.record(GuaranteeRow)
    require_borne_out(claim, ledger, str(folder / GUARANTEE))
    try:
        config = record.experiment()
    except PlanError as error:
        raise DossierError(f"{DEVICES} of {folder} holds no configuration that can be read: {error}") from error
    own = (record.run, config.privacy, record.people, len(record.summed))
    if own != (ledger.run, ledger.plan, ledger.population, len(ledger.entries)):
        raise DossierError(f"{CHARGES} of {folder} belongs to another run than {DEVICES}: bring back the run's own")
    gaussian = GaussianDp.from_composition(ledger.composition())
    source = cited(charges, "entries", copied=False)
    took_part = f"{record.joined:,} of {record.people:,} devices of {record.federation}"
    return Evidence(
        kind="devices",
        folder=folder,
        name=f"{config.method_name} over {took_part}, {min(record.summed):,} or more in every sum",
        files={DEVICES: file, GUARANTEE: guarantee},
        version=Datum(record.privfed, cited(file, "privfed")),
        when=Datum(record.ended[:10], cited(file, "ended")),
        method=Datum(config.method_name, cited(file, "config.method.name")),
        plan=Datum(plan_words(ledger.plan), cited(file, "config.privacy")),
        settings=Datum(ledger.plan.to_dict(), cited(file, "config.privacy")),
        guarantee=Datum(claim, cited(guarantee, "epsilon, delta, unit, neighbours, trust")),
        mu=None if gaussian is None else Datum(gaussian.mu, source),
        mu_missing="" if gaussian else MU_OF_NOTHING if not claim.finite else MU_OF_OTHERS,
        ledger=Datum(LedgerHead(ledger.head, len(ledger.entries), ledger.population), source),
        releases=Datum(releases_of(ledger), source),
        randomness=Datum(formatting.capital(record.randomness), cited(file, "randomness")),
    )
