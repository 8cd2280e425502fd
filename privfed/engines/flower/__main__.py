"""What an operator types beside Flower's own commands.

    python -m privfed.engines.flower keys FOLDER --nodes alpha beta gamma [--hosts 127.0.0.1 localhost]
    python -m privfed.engines.flower node-key FOLDER
    python -m privfed.engines.flower node FOLDER [--socket PATH] [--group] [--monitor ADDRESS] [--log text|json]
    python -m privfed.engines.flower gateway ADDRESS --superlink ADDRESS --nodes PATH ...
        --certificate FILE --key FILE --authority FILE
    python -m privfed.engines.flower strangers ADDRESS --authority FILE

`keys` makes an authority, a server certificate and the nodes' key pairs for a trial; `node-key` one node's pair, at the
organisation that keeps it; `node` serves the node that lives in a folder, with its data and its policy, or the helper
that lives there; `gateway` passes the calls of registered nodes to a SuperLink on loopback; `strangers` tries at the
gateway what a stranger must not do.
"""

import argparse
import asyncio
import logging
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

from privfed.engines.flower.keys import make_keys, node_keys
from privfed.engines.nodes.transport import Handler

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
    _add_network_commands(commands)
    given = parser.parse_args(arguments)
    try:
        if given.command == "keys":
            made = make_keys(given.folder, given.nodes, given.hosts)
            print(f"certificates and keys of {len(made.names)} nodes are in {made.folder}")
        elif given.command == "node-key":
            print(f"register {node_keys(given.folder)} at the SuperLink; node.key beside it stays here")
        elif given.command == "gateway":
            _gateway(given)
        elif given.command == "strangers":
            _strangers(given)
        else:
            from privfed.engines.nodes.operations import logging_to  # noqa: PLC0415 - loads torch, see below

            with logging_to(sys.stderr, given.log):
                _serve(given.folder, given.socket or given.folder / SOCKET, given.monitor, group=given.group)
    except (ValueError, OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _serve(folder: Path, path: Path, address: str | None, *, group: bool) -> None:
    """Serve until SIGTERM or SIGINT."""
    from privfed.engines.flower.service import Limits, NodeService  # noqa: PLC0415
    from privfed.engines.nodes.helper import Helper  # noqa: PLC0415 - loads torch, which making keys need not wait for
    from privfed.engines.nodes.hosting import hosted  # noqa: PLC0415 - the same
    from privfed.engines.nodes.operations import NodeMonitor, serve_monitor  # noqa: PLC0415 - the same

    node = hosted(folder)
    limits = Limits(node.policy.max_message_mib * 2**20)
    with ExitStack() as stack:
        handler: Handler = node
        if isinstance(node, Helper):
            if address is not None:
                raise ValueError("a helper has no metrics: leave --monitor out")
        else:
            handler = monitor = NodeMonitor(node)
            stack.enter_context(serve_monitor(monitor, address))
        service = stack.enter_context(NodeService(handler, path, limits, group_may_query=group))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.close())
        logging.getLogger(__name__).info("serving the node in %s at %s", folder, path)
        service.serve()


def _add_network_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add what needs Flower's own libraries."""
    gateway = commands.add_parser("gateway", help="pass the calls of registered nodes to a SuperLink on loopback")
    gateway.add_argument("listen", type=_address, metavar="ADDRESS", help="host:port that the nodes reach")
    gateway.add_argument("--superlink", required=True, metavar="ADDRESS", help="host:port of the SuperLink")
    gateway.add_argument("--nodes", type=Path, nargs="+", required=True, help="public keys, or folders of *.pub")
    gateway.add_argument("--certificate", type=Path, required=True, help="that nodes see")
    gateway.add_argument("--key", type=Path, required=True, help="the certificate's private key")
    gateway.add_argument("--authority", type=Path, required=True, help="that the SuperLink is verified with")
    strangers = commands.add_parser("strangers", help="try at the gateway what a stranger must not do")
    strangers.add_argument("address", metavar="ADDRESS", help="host:port that the nodes are given")
    strangers.add_argument("--authority", type=Path, required=True, help="that nodes verify the server with")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _gateway(given: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    from privfed.engines.flower.gateway import node_keys_at, serve  # noqa: PLC0415

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it writes a line for every call
    nodes = node_keys_at(given.nodes)
    asyncio.run(serve(given.listen, given.superlink, given.certificate, given.key, given.authority, nodes))


def _strangers(given: argparse.Namespace) -> None:
    from privfed.engines.flower.strangers import check_strangers  # noqa: PLC0415

    refused = check_strangers(given.address, given.authority)
    print(f"{given.address} refuses a stranger who tries to {', '.join(refused)}")


if __name__ == "__main__":
    sys.exit(main())
