# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=bash
# Sourced by ./dev: the Debian 12 packages that each subcommand needs, and their installation.

# shellcheck disable=SC2034 # used by ./dev
packages_build=(gcc libc6-dev libcmocka-dev libjansson-dev libssl-dev liburing-dev libxxhash-dev
	libyaml-dev meson ninja-build pkgconf python3 systemtap-sdt-dev)
packages_guest=(busybox-static qemu-system-x86 socat)
packages_test=(binutils clang-14 g++ gdb)
packages_lint=(clang-14 clang-format-14 clang-tidy-14 codespell cppcheck git mandoc pyflakes3
	shellcheck)

# Print those of the packages that are not installed.
packages_missing() {
	local package

	for package in "$@"; do
		dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null |
			grep -qx installed || echo "$package"
	done
}

apt_get() {
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive LC_ALL=C \
		apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"
}

# apt-get waits for dpkg's lock by itself, but not for that of the lists.
update_lists() {
	local output

	for _ in {1..60}; do
		output=$(apt_get update 2>&1) && break
		echo "$output"
		grep -q 'Could not get lock' <<<"$output" || break
		sleep 5
	done
}

# Are there lists, and did apt look for new ones within the last day?
lists_fresh() {
	compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null &&
		[ -n "$(find /var/lib/apt/lists/partial -maxdepth 0 -mmin -1440 2>/dev/null)" ]
}

# Lists that look fresh can be too old all the same, so a failure is tried once more with new ones.
install_missing() {
	lists_fresh || update_lists
	apt_get install --no-install-recommends "$@" && return
	update_lists
	apt_get install --no-install-recommends "$@"
}

# need PACKAGE... - install those that are missing, or end with one line that names them.
need() {
	local missing as_root=()

	mapfile -t missing < <(packages_missing "$@")
	[ ${#missing[@]} -gt 0 ] || return 0
	if [ "$(id -u)" != 0 ]; then
		as_root=(sudo)
	fi
	if ! command -v apt-get >/dev/null || { [ ${#as_root[@]} -gt 0 ] && ! command -v sudo >/dev/null; }; then
		echo "dev: please install these Debian packages: ${missing[*]}" >&2
		exit 1
	fi
	step "install ${missing[*]}" packages install_missing "${missing[@]}" || exit 1
}
