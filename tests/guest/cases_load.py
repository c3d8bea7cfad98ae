# SPDX-License-Identifier: BSD-3-Clause
"""Many streams, long ones, small packets and changing windows; every byte is looked at."""
import os
import time

from cases_ends import answer_calls, counting, step_by_step
from guestlab import HOST_CID, kernel_version
from load import Pair
from streams import MIB, echo_check
from tap import check, check_equal, comment

SECONDS = int(os.environ.get('RF_SECONDS') or 60)


def two_hundred_at_once(guest, back_end):
    """200 connections at once, 100 of each side, 100 kB each way"""
    descriptors = back_end.descriptors()
    pair = Pair(guest, back_end, 5200, 'bytes 100000 chunk 1:65536', 100)
    check_equal(back_end.counters()['connections'], 200, 'connections at once')
    pair.begin(length=100000, chunk=(1, 65536))
    check_equal(pair.finish(), 4 * 100 * 100000, 'bytes')
    back_end.check_all_ended()
    check_equal(back_end.descriptors(), descriptors, 'descriptors')


def ten_thousand_in_turn(guest, back_end):
    """10000 connections, half of them the guest's: descriptors and memory as before"""
    def calls(count):
        with back_end.listen(5201) as listener:
            thread = answer_calls(listener, count)
            guest.start('cmd', f'vsockcalls call {HOST_CID} 5201 {count}')
            for number in range(count):
                echo_check(back_end.connect(5202), b'number %d' % number)
            check_equal(guest.finish('cmd', 240), (0, ''), 'guest')
            thread.join(10)
            check(not thread.is_alive(), 'the host has not seen all')
        back_end.check_all_ended()

    guest.start('echo', 'vsockcalls echo 5202')
    calls(500)
    descriptors, resident = back_end.descriptors(), back_end.resident_kib()
    calls(5000)
    guest.shell('killall vsockcalls')
    check_equal(back_end.descriptors(), descriptors, 'descriptors')
    grown = back_end.resident_kib() - resident
    comment(f'memory in use: {resident} KiB, {grown:+} KiB')
    check(grown <= 128, f'{grown} KiB more in use after 10000 connections')


# A machine that does other things besides takes several times as long.
ten_thousand_in_turn.seconds = 240


def long_transfer(guest, back_end):
    """both directions of two connections at once, for a while (RF_SECONDS)"""
    pair = Pair(guest, back_end, 5203, f'seconds {SECONDS}').begin(seconds=SECONDS)
    total = pair.finish(SECONDS + 40)
    comment(f'{total / MIB:.0f} MiB in {SECONDS} s')


long_transfer.seconds = SECONDS + 60


def small_chunks_to_guest(guest, back_end, port, length, words):
    """100 to 450 bytes at a time to a guest that reads as @words say."""
    before = back_end.counters()
    pair = Pair(guest, back_end, port, words)
    pair.begin(length=length, chunk=(100, 450), pause=0.0003).finish()
    after = back_end.counters()
    comment(f'{after["to_guest_data_packets"] - before["to_guest_data_packets"]} packets,'
            f' {after["to_guest_bytes"] - before["to_guest_bytes"]} bytes')


def small_chunks_to_slow_guest(guest, back_end):
    """100 to 450 bytes at a time to a guest that reads late: no reset (libkrun #795)"""
    small_chunks_to_guest(guest, back_end, 5204, 400000, 'wait 2500 read 3000')


def small_chunks_to_reading_guest(guest, back_end):
    """100 to 450 bytes at a time to a guest that reads slowly all the time"""
    small_chunks_to_guest(guest, back_end, 5205, 600000, 'read 700 pause 1000')


def small_chunks_to_slow_host(guest, back_end):
    """129 to 512 bytes at a time from the guest to a host program that reads late and slowly"""
    pair = Pair(guest, back_end, 5206, f'bytes {2 * MIB} chunk 129:512')
    pair.begin(wait=1, read=5000, pause=0.001).finish()


def changing_windows(guest, back_end):
    """guest that sends changes its buffer size between 128 bytes and 256 KiB all the time"""
    words = f'sizes 128:262144 bytes {4 * MIB} chunk 1000:65536'
    Pair(guest, back_end, 5207, words).begin().finish()


def shrunk_window(guest, back_end):
    """guest shrinks its buffer far below the 256 KiB that are in it (CVE-2026-23069)"""
    # Linux 6.12 counts 576 bytes per packet and resets what exceeds the buffer; 6.1 counts payload.
    size = 128 if kernel_version() == '6.1' else 2048
    words = f'send 1 sleep 500 buffer {size} sleep 200 data 300000 eof'
    with step_by_step(guest, back_end, 5208, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.sendall(counting(300000))
        sock.close()


def low_water_mark_set_late(guest, back_end):
    """SO_RCVLOWAT raised above what is there: the window opens for it (vsock_test 22)"""
    words = 'buffer 131072 send 1 sleep 500 recv 65536 lowat 65537 poll in,out recv 65537 eof'
    low_water_mark(guest, back_end, 5209, words)


def low_water_mark_set_early(guest, back_end):
    """read below SO_RCVLOWAT: the window opens for it (vsock_test 23)"""
    words = 'buffer 131072 lowat 65537 send 1 sleep 500 recv 65536 poll in,out recv 65537 eof'
    low_water_mark(guest, back_end, 5210, words)


def low_water_mark(guest, back_end, port, words):
    """The host sends one byte more than the guest's buffer holds."""
    with step_by_step(guest, back_end, port, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.sendall(counting(131073))
        # End of file would open the poll, too.
        time.sleep(2)
        sock.close()


def paused(guest, back_end):
    """QEMU stop and cont, five times, with 20 busy and 20 idle connections: all go on"""
    idle = Pair(guest, back_end, 5211, 'bytes 1000 after 1', 10)
    busy = Pair(guest, back_end, 5212, f'bytes {2 * MIB} chunk 1:65536', 10)
    busy.begin(length=2 * MIB, chunk=(1, 65536))
    for part in range(1, 6):
        busy.wait_received(part * 3 * MIB)
        guest.command('stop')
        time.sleep(0.3)
        guest.command('cont')
    busy.finish()
    idle.begin(length=1000).finish()


CASES = (two_hundred_at_once, ten_thousand_in_turn, small_chunks_to_slow_guest,
         small_chunks_to_reading_guest, small_chunks_to_slow_host, changing_windows, shrunk_window,
         low_water_mark_set_late, low_water_mark_set_early, paused, long_transfer)
