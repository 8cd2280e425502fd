"""What an operator types beside Flower's own commands.

    python -m privfed.engines.flower keys FOLDER --nodes alpha beta gamma [--hosts 127.0.0.1 localhost]
    python -m privfed.engines.flower node-key FOLDER
    python -m privfed.engines.flower node FOLDER [--socket PATH] [--group] [--monitor ADDRESS] [--log text|json]

`keys` makes an authority, a server certificate and the nodes' key pairs for a trial; `node-key` one node's pair, at the
organisation that keeps it; `node` serves the node that lives in a folder, with its data and its policy.
"""

import argparse
import logging
import signal
import sys
from pathlib import Path

from privfed.engines.flower.keys import make_keys, node_keys

SOCKET = "node.sock"


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands; returns the exit code."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m privfed.engines.flower", description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    keys = commands.add_parser("keys", help="certificates and keys of a trial")
    keys.add_argument("folder", type=Path, help="new or empty")
    keys.add_argument("--nodes", nargs="+", required=True, metavar="NAME")
    keys.add_argument(
        "--hosts", nargs="+", default=["127.0.0.1", "localhost"], help="under which nodes reach the server"
    )
    key = commands.add_parser("node-key", help="key pair of one node")
    key.add_argument("folder", type=Path)
    node = commands.add_parser("node", help="serve the node that lives in a folder")
    node.add_argument("folder", type=Path)
    node.add_argument("--socket", type=Path, help=f"where to serve; FOLDER/{SOCKET} where it is not given")
    node.add_argument("--group", action="store_true", help="let the group of the socket ask, too")
    node.add_argument("--monitor", metavar="ADDRESS", help="serve health and metrics there, such as 127.0.0.1:9400")
    node.add_argument("--log", choices=("text", "json"), default="text", help="kind of log lines")
    given = parser.parse_args(arguments)
    try:
        if given.command == "keys":
            made = make_keys(given.folder, given.nodes, given.hosts)
            print(f"certificates and keys of {len(made.names)} nodes are in {made.folder}")
        elif given.command == "node-key":
            print(f"register {node_keys(given.folder)} at the SuperLink; node.key beside it stays here")
        else:
            from privfed.engines.nodes.operations import logging_to  # noqa: PLC0415 - loads torch, see below

            with logging_to(sys.stderr, given.log):
                _serve(given.folder, given.socket or given.folder / SOCKET, given.monitor, group=given.group)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _serve(folder: Path, path: Path, address: str | None, *, group: bool) -> None:
    """Serve until SIGTERM or SIGINT."""
    from privfed.engines.flower.service import Limits, NodeService  # noqa: PLC0415
    from privfed.engines.nodes.node import Node  # noqa: PLC0415 - loads torch, which making keys need not wait for
    from privfed.engines.nodes.operations import NodeMonitor, serve_monitor  # noqa: PLC0415 - the same

    node = Node(folder)
    monitor, limits = NodeMonitor(node), Limits(node.policy.max_message_mib * 2**20)
    with serve_monitor(monitor, address), NodeService(monitor, path, limits, group_may_query=group) as service:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.close())
        logging.getLogger(__name__).info("serving the node in %s at %s", folder, path)
        service.serve()


if __name__ == "__main__":
    sys.exit(main())
