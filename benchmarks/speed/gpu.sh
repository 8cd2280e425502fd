#!/usr/bin/env bash
# Everything that a GPU has to show, in pieces of under ten minutes: call it until it says that nothing is left.
# benchmarks/speed/gpu.sh [DEVICE] [further options of benchmarks.speed.gpu]; results: benchmarks/results/gpu.json
set -euo pipefail
cd "$(dirname "$0")/../.."
device=${1:-cuda}
shift || true
exec "${PYTHON:-python3}" -m benchmarks.speed.gpu --device "$device" --minutes "${MINUTES:-8.5}" "$@"
