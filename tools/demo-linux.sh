#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# demo-linux.sh [--file F | --size BYTES] - what demo.sh shows, with a real Linux guest under QEMU's
# emulation. "./dev demo --linux" installs QEMU and builds first; RF_BIN names another program than
# build/ringferry.
set -euo pipefail
exec /usr/bin/python3 "$(dirname "$(readlink -f "$0")")/demo-linux.py" "$@"
