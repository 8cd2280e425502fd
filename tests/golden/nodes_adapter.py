"""Train over nodes in this process: the one part of the digests that no command reaches.

It has to use privfed's own classes. Where these move, they are found by name; where they are renamed, add the new name
to `named(...)` below, and where a signature changes, change the call.
"""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import numpy as np


def named(*names: str) -> Any:
    """What is defined under one of these names in any module of privfed.

    Raises:
        LookupError: nothing is.
    """
    import privfed

    for found in pkgutil.walk_packages(privfed.__path__, "privfed.", onerror=lambda _: None):
        if found.name.startswith(("privfed.engines.flower", "privfed.__main__")):
            continue
        module = importlib.import_module(found.name)
        for name in names:
            thing = vars(module).get(name)
            if thing is not None and getattr(thing, "__module__", None) == module.__name__:
                return thing
    raise LookupError(f"privfed defines none of {', '.join(names)}: add the new name to tests/golden/nodes_adapter.py")


def parties(shards: list[np.ndarray], items: int) -> list[dict[str, Any]]:
    """Arguments by which the server and the nodes are given their keys; none where a checkout signs no messages."""
    try:
        server, organisations, _ = named("found_federation")(shards, sum(map(len, shards)), items, corrupt=0)
    except LookupError:
        return [{} for _ in range(1 + len(shards))]
    return [{"party": party} for party in (server, *organisations)]


def train_over_nodes(case: dict[str, Any], data: Path, folder: Path) -> dict[str, Any]:
    """Train over three nodes whose users lie mixed; the server's folder is left, and what it came to is given back."""
    from safetensors.torch import save_file

    from privfed.data import load, split

    node, node_data, policy, in_process = named("Node"), named("NodeData"), named("Policy"), named("InProcess")
    config_model, plan = named("ExperimentConfig"), named("PrivacyPlan")
    train = importlib.import_module(named("Trained", "NodesResult").__module__).train
    config = config_model(
        data="golden", method=case["method"], privacy=plan.parse(case["plan"]), rounds=2, chunk=16, seed=3
    )
    parts = split(load(str(data / "times.csv")), config.split)
    registered = config.registered()
    public = getattr(registered, "traits", registered).public_target
    kinds = ["clip_only", "local_laplace", "central_gaussian", "secure_sum", "distributed_gaussian"]
    if "mechanisms" in policy.model_fields:
        open_to_all = policy(allow_simulation=True, mechanisms=["unprotected", *kinds], evaluate=True)
    else:
        open_to_all = policy(allow_simulation=True, protections=["nothing", *kinds], evaluate=True)
    if "min_own_users" in policy.model_fields:
        open_to_all = open_to_all.model_copy(update={"min_own_users": 1, "own_noise_suffices": False})
    users, nodes = np.arange(parts.train.n_users), {}
    shards = [users[place::3] for place in range(3)]
    share_of = getattr(node_data, "from_split", None) or node_data.of
    for_server = getattr(node_data, "for_server", None) or node_data.of_server
    server, *organisations = parties(shards, parts.train.n_items)
    for place, own in enumerate(shards):
        shard = share_of(parts, own, public=public)
        nodes[100 + place] = node(folder.parent / f"settings/node{place}", open_to_all, shard, **organisations[place])
    trained = train(
        config, for_server(parts, public=public), transport=in_process(nodes), folder=folder, seeded=True, **server
    )
    state = {name: value.contiguous() for name, value in trained.server.state().items()}
    save_file(state, folder / "server.safetensors")
    return {"guarantee": trained.guarantee.model_dump(mode="json")}
