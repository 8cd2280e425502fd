"""The experiment files that docs/cli.md shows are accepted as they stand."""

import re
from pathlib import Path

from privfed.cli.audit_settings import audit_config
from privfed.cli.layers import read_file
from privfed.cli.settings import run_config


def test_experiment_files_of_the_page(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()
    grid, variants, single = re.findall(r"```toml\n(.*?)```", page, flags=re.DOTALL)
    file = tmp_path / "experiment.toml"
    file.write_text(grid)
    audit, _ = audit_config(read_file(file), {}, [])
    assert [plan.mechanism.kind for plan in audit.plans] == ["unprotected", "local_laplace"]
    assert audit.methods[1] == {"name": "gpfedrec", "graph": "distance"}
    assert audit.seeds == (0, 1, 2)
    file.write_text(variants)
    own, _ = audit_config(read_file(file), {}, [])
    assert [variant.key[0] for variant in own.grid()] == ["gpfedrec", "feddae"]
    assert (own.attributes, own.canaries) == (True, 1000)
    file.write_text(single)
    run, source = run_config([read_file(file)])
    assert run.method["graph"] is None
    assert run.protocol.candidates == "sampled"
    assert run.split.ties == "later_row_is_newer"
    assert run.privacy.name == "local Laplace (eps0 = 1 per upload, C = 1), fixed 94, delta 1e-06"
    assert source.chosen
