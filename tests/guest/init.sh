#!/bin/busybox sh
# SPDX-License-Identifier: BSD-3-Clause
# shellcheck shell=dash
# /init of the test guest: load the modules, then run what the host sends over the virtio serial
# port (an emulated 16550 loses bytes).
#
# Each request is one line "ID SECONDS SCRIPT", the script in base64; the answer is a line
# "ID STATUS BYTES" with that many bytes of output behind it. "ready" is said once per boot.
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t tmpfs -o size=90% tmp /tmp
for module in /modules/*.ko; do
	insmod "$module" || echo "init: $module does not load"
done
ip link set lo up

exec 3<>/dev/vport0p1
echo "ready $(cat /proc/uptime)" >&3
while read -r id seconds script <&3; do
	echo "$script" | base64 -d >/tmp/request
	timeout "$seconds" sh /tmp/request >/tmp/answer 2>&1 </dev/null 3>&-
	status=$?
	echo "$id $status $(stat -c %s /tmp/answer)" >&3
	cat /tmp/answer >&3
done
# The host ends QEMU; if its serial port is gone there is nothing left to do.
poweroff -f
