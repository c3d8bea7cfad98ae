#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# bench-peer.sh vhost-device-vsock [ARGUMENTS of "ringferry bench"...] - measure beside another back end.
#
# The same guest half and the same host programs run against it, in turn with ours in one run. It is
# installed with cargo, into .cache/peer, when it is not there. It runs twice: as it is by default, and with
# the window that ours has (--tx-buffer-size), so that nobody can say that a larger window is all there
# is. "./dev bench --peer vhost-device-vsock" builds first; RF_BIN names another program than build/ringferry.
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "$0")")")
bin=$(readlink -f "${RF_BIN:-$root/build/ringferry}")
version=0.3.0
window=1048576
sizes=64,256,512,1k,2k,4k,8k,16k,32k,64k,128k,256k,512k
work=
pids=()

fail() {
	echo "bench: $1" >&2
	exit 1
}

# Ends what was started here, and removes what was made.
clean_up() {
	trap '' INT TERM
	if [ ${#pids[@]} -gt 0 ]; then
		kill "${pids[@]}" 2>/dev/null || true
		wait "${pids[@]}" 2>/dev/null || true
	fi
	[ -z "$work" ] || rm -rf "$work"
}

# Print the path of the peer's program; installs it first.
install_peer() {
	local folder=$root/.cache/peer/vhost-device-vsock-$version
	local log=$root/.cache/log/peer.log

	if [ ! -x "$folder/bin/vhost-device-vsock" ]; then
		command -v cargo >/dev/null ||
			fail "vhost-device-vsock is built with cargo, which is not installed here (https://rustup.rs)"
		echo "bench: install vhost-device-vsock $version ..." >&2
		mkdir -p "${log%/*}"
		if ! cargo install vhost-device-vsock --version "=$version" --locked --root "$folder" \
			>"$log" 2>&1; then
			tail -n 5 "$log" >&2
			fail "$(cargo --version) did not build vhost-device-vsock (Debian 12's, 0.66, is too old): $log"
		fi
	fi
	echo "$folder/bin/vhost-device-vsock"
}

# start NAME OPTION... - start the peer with sockets of that name and wait for them.
start() {
	local name=$1
	shift

	"$peer" --socket "$work/$name" --uds-path "$work/$name.vsock" "$@" >"$work/$name.log" 2>&1 &
	pids+=($!)
	for _ in {1..100}; do
		[ ! -S "$work/$name" ] || return 0
		sleep 0.05
	done
	cat "$work/$name.log" >&2
	fail "vhost-device-vsock did not open its socket"
}

[ "${1-}" = vhost-device-vsock ] || {
	echo "bench: --peer: \"${1-}\" is not allowed; allowed: vhost-device-vsock" >&2
	exit 2
}
shift
trap clean_up EXIT
trap 'exit 130' INT TERM
peer=$(install_peer)
work=$(mktemp -d)
start peer
start peer-window --tx-buffer-size "$window"
backends=(--backend "vhost-device-vsock=$work/peer,$work/peer.vsock"
	--backend "vhost-device-vsock-1m=$work/peer-window,$work/peer-window.vsock")
if [ $# -gt 0 ]; then
	"$bin" bench "$@" "${backends[@]}"
else
	"$bin" bench stream --dir both --sizes "$sizes" "${backends[@]}"
	"$bin" bench pingpong --sizes 512,4k "${backends[@]}"
fi
