# SPDX-License-Identifier: BSD-3-Clause
"""Kinds of guest memory."""
import contextlib
import fcntl
import os
import re
import time

import guestimage
from guestlab import HOST_CID, own_machine, programs, read_text
from load import Pair
from streams import crossing
from tap import Skip, check, check_equal, comment, wait_for

MAPPED = re.compile(r'[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ (\d+) +/memfd:memory-backend-memfd')


def two_regions():
    """3 GiB of guest memory, which is two regions"""
    with own_machine(megabytes=3072) as (guest, back_end):
        crossing(guest, back_end)


def shared_file():
    """guest memory in a file with share=on"""
    with own_machine(memory='file,share=on') as (guest, back_end):
        crossing(guest, back_end)


def check_diagnosed(memory):
    """A guest whose memory is not shared is told of in one line that says what to do."""
    with own_machine(memory=memory) as (guest, back_end):
        def lines():
            return [line for line in (read_text(back_end.log) + read_text(guest.log)).splitlines()
                    if 'share=on' in line]
        guest.run(f'socat - VSOCK-CONNECT:{HOST_CID}:6006 </dev/null')
        wait_for(lines, 10, 'a line that names share=on')
        time.sleep(1)
        check_equal(len(lines()), 1, f'lines that name share=on, {lines()}')
        comment(lines()[0])
        check(back_end.alive(), 'the back end has ended')


def plain_memory():
    """plain guest memory (-m alone) is diagnosed in one line"""
    check_diagnosed('plain')


def private_memfd():
    """memory-backend-memfd,share=off is diagnosed in one line"""
    check_diagnosed('memfd,share=off')


def private_file():
    """memory-backend-file,share=off is diagnosed in one line"""
    check_diagnosed('file,share=off')


def mapped_pieces(back_end):
    """How many KiB the back end has touched of each piece of guest memory that it has mapped."""
    touched = {}
    inode = None
    for line in read_text(f'/proc/{back_end.process.pid}/smaps').splitlines():
        head = MAPPED.match(line)
        if head or re.match('[0-9a-f]+-', line):
            inode = head and head[1]
        elif inode and line.startswith('Rss:'):
            touched[inode] = touched.get(inode, 0) + int(line.split()[1])
    return list(touched.values())


def online_memory(guest):
    """Let the guest use memory that is new. Return: blocks of memory in use"""
    return int(guest.shell("""cd /sys/devices/system/memory
        for state in memory*/state; do
                [ $(cat $state) = online ] || echo online_kernel >$state
        done
        grep -l online memory*/state | wc -l"""))


def more_memory():
    """10 DIMMs plugged in while data flow: 11 regions, buffers in the new ones"""
    with own_machine(megabytes=256, programs=programs(), dimms=16) as (guest, back_end):
        blocks = online_memory(guest)
        pair = Pair(guest, back_end, 6100, 'seconds 8').begin(seconds=8)
        for number in range(10):
            guest.plug_dimm(f'dimm{number}', 128)
            wait_for(lambda number=number: online_memory(guest) >= blocks + number + 1, 30,
                     f'memory of DIMM {number}')
        pair.finish()
        crossing(guest, back_end)
        pieces = mapped_pieces(back_end)
        check_equal(len(pieces), 11, 'pieces of memory in the back end')
        used = sum(1 for kib in pieces if kib)
        comment(f'{used} of 11 pieces hold buffers')
        check(used > 1, 'no buffer was in the new memory')


@contextlib.contextmanager
def huge_pages(count):
    """Let the kernel make so many huge pages of 2 MiB on demand, as before in the end."""
    setting = '/proc/sys/vm/nr_overcommit_hugepages'
    # The other kernel's tests may run at the same time.
    with open(os.path.join(guestimage.cache_dir(), 'hugepages'), 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = read_text(setting).strip()
        try:
            with open(setting, 'w', encoding='ascii') as file:
                file.write(str(int(before) + count))
        except (OSError, ValueError) as error:
            raise Skip(f'this machine gives no huge pages: {error}') from None
        try:
            yield
        finally:
            with open(setting, 'w', encoding='ascii') as file:
                file.write(before)


def huge_memory():
    """guest memory in huge pages"""
    with huge_pages(128):
        with own_machine(megabytes=256, memory='memfd,share=on,hugetlb=on,hugetlbsize=2M') as (
                guest, back_end):
            crossing(guest, back_end)


CASES = (two_regions, more_memory, huge_memory, shared_file, plain_memory, private_memfd,
         private_file)
