#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# demo.sh [--file F] [--size BYTES] - carry a file host -> guest -> host through a back end and a guest
# that is a process, check it, and let the guest call the host. demo.sh --linux [...] does it with a
# Linux guest. "./dev demo" builds first; RF_BIN names another program than build/ringferry.
set -euo pipefail

root=$(dirname "$(dirname "$(readlink -f "$0")")")
bin=$(readlink -f "${RF_BIN:-$root/build/ringferry}")
cid=42
file=
size=256m
work=

usage() {
	echo "usage: ./dev demo [--file FILE | --size BYTES[k|m|g]]"
	echo "       ./dev demo --linux [--file FILE | --size BYTES[k|m|g]]"
}

refuse() {
	echo "demo: $1" >&2
	exit 2
}

fail() {
	echo "demo: FAILED: $1" >&2
	# What the programs had to say about it.
	[ -z "$work" ] || cat "$work"/*.log >&2
	exit 1
}

# Ends what was started here, and removes what was made.
clean_up() {
	local pids

	trap '' INT TERM
	mapfile -t pids <<<"$(jobs -pr)"
	if [ -n "${pids[*]}" ]; then
		kill "${pids[@]}" 2>/dev/null || true
		wait "${pids[@]}" 2>/dev/null || true
	fi
	[ -z "$work" ] || rm -rf "$work"
}

bytes_of() {
	local number=${1%[kmg]}

	[[ $number =~ ^[0-9]{1,12}$ ]] || refuse "--size: \"$1\" is not allowed; allowed: a number with or without k, m, g"
	case $1 in
	*k) echo $((10#$number << 10)) ;;
	*m) echo $((10#$number << 20)) ;;
	*g) echo $((10#$number << 30)) ;;
	*) echo $((10#$number)) ;;
	esac
}

parse_arguments() {
	while [ $# -gt 0 ]; do
		case $1 in
		--file=* | --size=*) set -- "${1%%=*}" "${1#*=}" "${@:2}" ;;
		--file | --size)
			[ $# -gt 1 ] || refuse "$1: its argument is missing"
			case $1 in
			--file) file=$2 ;;
			--size) size=$2 ;;
			esac
			shift 2
			;;
		-h | --help)
			usage
			exit 0
			;;
		*) refuse "$1: unknown argument; allowed: --linux, --file FILE, --size BYTES" ;;
		esac
	done
	size=$(bytes_of "$size")
	if [ -n "$file" ]; then
		if [ ! -f "$file" ] || [ ! -r "$file" ]; then
			refuse "--file: \"$file\" is no readable file"
		fi
		file=$(readlink -f "$file")
		size=$(stat -c %s "$file")
	fi
}

# Where the copies go: to memory when there is plenty, since a disk would set the pace else, and
# where TMPDIR says if that is set.
place() {
	local wanted_kb=$((3 * size >> 10)) shm_kb memory_kb

	shm_kb=$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)
	memory_kb=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo)
	if [ -z "${TMPDIR-}" ] && [ -w /dev/shm ] && ((shm_kb > wanted_kb && memory_kb > 2 * wanted_kb)); then
		echo /dev/shm
	else
		echo "${TMPDIR:-/tmp}"
	fi
}

# One random piece, turned a little further each time: quick to make, and no two pieces are equal.
make_data() {
	python3 - "$1" "$2" <<-'END'
		import random, sys
		left, turn = int(sys.argv[1]), 0
		piece = random.Random(1).randbytes((1 << 20) + 7)
		with open(sys.argv[2], 'wb') as file:
		    while left > 0:
		        left -= file.write((piece[turn:] + piece[:turn])[:left])
		        turn = (turn + 4099) % len(piece)
	END
}

# start NAME IN OUT ARGUMENT... - start ringferry in the background; $! is its process.
start() {
	local name=$1 in=$2 out=$3
	shift 3

	: >"$out"
	"$bin" "$@" <"$in" >>"$out" 2>"$name.log" &
}

# carry LABEL OUT PID... - show how OUT grows until all PIDs have ended well, then the rate.
carry() {
	local label=$1 out=$2 begin=${EPOCHREALTIME/./} pid us
	shift 2

	for pid in "$@"; do
		while kill -0 "$pid" 2>/dev/null; do
			[ ! -t 1 ] || printf '\r  %s  %d of %d MiB ' "$label" \
				$(($(stat -c %s "$out") >> 20)) $((size >> 20))
			sleep 0.05
		done
		wait "$pid" || fail "$label"
	done
	us=$((${EPOCHREALTIME/./} - begin))
	[ ! -t 1 ] || printf '\r'
	printf '  %s  %d bytes in %d.%02d s: %d MiB/s\n' "$label" "$size" $((us / 1000000)) \
		$((us / 10000 % 100)) $((size * 1000000 / us >> 20))
}

check_sum() {
	local sum
	sum=$(sha256sum <"$2" | cut -d ' ' -f 1)

	[ "$sum" = "$wanted" ] || fail "$1 has another SHA-256: $sum"
	echo "  $1: SHA-256 is the same, ${sum:0:16}..."
}

parse_arguments_or_linux() {
	local arguments=() linux=false argument

	for argument in "$@"; do
		case $argument in
		--linux) linux=true ;;
		*) arguments+=("$argument") ;;
		esac
	done
	if $linux; then
		exec "$root/tools/demo-linux.sh" "${arguments[@]}"
	fi
	parse_arguments "${arguments[@]}"
}

parse_arguments_or_linux "$@"
[ -x "$bin" ] || refuse "$bin is not there; ./dev demo builds it"
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
work=$(mktemp -d "$(place)/ringferry-demo.XXXXXX")
# Relative paths from here on: what is shown stays short.
cd "$work"
uds=vm.vsock
vm=vm.sock

if [ -z "$file" ]; then
	file=data
	echo "Making $((size >> 20)) MiB of data ..."
	make_data "$size" "$file" 2>data.log || fail "making data"
fi
wanted=$(sha256sum <"$file" | cut -d ' ' -f 1)

echo "The back end: ringferry vsock --guest-cid $cid --socket $vm --uds-path $uds"
start vsock /dev/null ready vsock --guest-cid "$cid" --socket "$vm" --uds-path "$uds" --print-ready
back_end=$!
until grep -q ready ready; do
	kill -0 "$back_end" 2>/dev/null || fail "the back end did not start"
	sleep 0.02
done

echo "Host to guest: ringferry guest --socket $vm listen 1000 and ringferry connect $uds 1000"
start guest /dev/null guest.file guest --socket "$vm" listen 1000
guest=$!
start connect "$file" /dev/null connect --wait 10 "$uds" 1000
carry "host -> guest" guest.file $! "$guest"
check_sum "the guest's file" guest.file

echo "Guest to host: ringferry guest --socket $vm listen 1001 and ringferry connect $uds 1001"
start guest guest.file /dev/null guest --socket "$vm" listen 1001
guest=$!
start connect /dev/null host.file connect --wait 10 "$uds" 1001
carry "guest -> host" host.file $! "$guest"
check_sum "the file that came back" host.file

echo "The guest calls: ringferry listen $uds 5000 and ringferry guest --socket $vm connect 2 5000"
echo "Hello guest, this is the host." >host.says
echo "Hello host, this is the guest." >guest.says
start listen host.says host.hears listen "$uds" 5000
listener=$!
until [ -S "${uds}_5000" ]; do
	kill -0 "$listener" 2>/dev/null || fail "the host does not listen"
	sleep 0.02
done
start guest guest.says guest.hears guest --socket "$vm" connect 2 5000
wait $! || fail "the guest's call"
wait "$listener" || fail "the guest's call, at the host"
cmp host.says guest.hears || fail "the guest heard something else"
cmp guest.says host.hears || fail "the host heard something else"
echo "  the host heard:  $(cat host.hears)"
echo "  the guest heard: $(cat guest.hears)"

echo
echo "With a VM: build/ringferry vsock --guest-cid 4 --socket /tmp/vm4.sock --uds-path /tmp/vm4.vsock, and then qemu with"
echo "-object memory-backend-memfd,id=mem,size=512M,share=on -machine memory-backend=mem -m 512 -chardev socket,id=c0,path=/tmp/vm4.sock -device vhost-user-vsock-pci,chardev=c0"
