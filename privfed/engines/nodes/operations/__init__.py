"""What an operator sees of a node or a server: metrics, health, logs, and one line a round.

`NodeMonitor` and `ServerMonitor` keep what a process did, `serve_monitor` serves it over HTTP, `logging_to` writes log
lines that no peer can forge, and `round_line` tells what happened in a round.
"""

from privfed.engines.nodes.operations.http_endpoint import MonitorAddressError, serve_monitor
from privfed.engines.nodes.operations.logs import escape, logging_to
from privfed.engines.nodes.operations.node_monitor import NodeMonitor
from privfed.engines.nodes.operations.progress import RoundReport, round_line, round_report
from privfed.engines.nodes.operations.server_monitor import ServerMonitor

__all__ = [
    "MonitorAddressError",
    "NodeMonitor",
    "RoundReport",
    "ServerMonitor",
    "escape",
    "logging_to",
    "round_line",
    "round_report",
    "serve_monitor",
]
