#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The probes, seen by a program outside: gdb counts them, and both halves' counters must agree.

RF_BIN is the program. Skipped where gdb may not trace.
"""
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', 'guest'))
# pylint: disable=wrong-import-position
from tap import Skip, check, check_equal, comment, run_cases, wait_for  # noqa: E402

BIN = os.environ.get('RF_BIN', 'build/ringferry')
WORK = tempfile.mkdtemp(prefix='rf-test-probes-')
SOCKET = os.path.join(WORK, 'vhost')
UDS = os.path.join(WORK, 'uds')
CID, ROUNDS, BULK = 4, 50, 3 << 20
ECHO, SOURCE, SINK = PORTS = 7, 8, 9
GDB = ['gdb', '-nx', '-batch', '-iex', 'set debuginfod enabled off']
ENVIRONMENT = dict(os.environ, DEBUGINFOD_URLS='')

# Probes of each half, which has counters of the same names.
HOST = ('from_guest_packets', 'to_guest_packets', 'credit_updates')
VHOST = ('vu_kicks', 'vu_calls')
GUEST = ('tx_packets', 'tx_credit_updates', 'tx_kicks', 'tx_calls', 'rx_packets', 'rx_kicks',
         'rx_calls', 'tx_direct', 'tx_queued_busy', 'tx_queued_full', 'tx_queued_earlier',
         'tx_queued_off')
# Only who waits for room on the transmit ring asks for calls; why packets are queued is chance.
MAY_BE_NONE = ('tx_calls', 'tx_direct', 'tx_queued_busy', 'tx_queued_full', 'tx_queued_earlier',
               'tx_queued_off')
# ringferry guest has two loops: the program's, which also sends, and the guest's: threads.
PROGRAM_LOOP, GUEST_LOOP = 1, 2
PACKETS = {'from_guest_packets': 'from_guest_bytes', 'to_guest_packets': 'to_guest_bytes',
           'tx_packets': 'tx_bytes', 'rx_packets': 'rx_bytes'}
DATA, CREDIT_UPDATE = 5, 6


def read(path):
    """A file's text; nothing if it is not there yet."""
    with contextlib.suppress(FileNotFoundError):
        with open(path, encoding='ascii') as file:
            return file.read()
    return ''


class Traced:
    """A ringferry under gdb."""

    def __init__(self, stack, name, *arguments):
        self.path = os.path.join(WORK, name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.process = stack.enter_context(subprocess.Popen(
            [*GDB, '-x', os.path.join(HERE, 'probes_gdb.py'), '--args', BIN, *arguments],
            env=dict(ENVIRONMENT, RF_PROBES=self.path), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        stack.callback(self._end)
        self.pid = int(wait_for(lambda: read(self.path), 30, 'gdb'))
        self._line(self.process.stdout, 'ready')

    def _end(self):
        self.process.kill()
        if hasattr(self, 'pid'):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _line(self, stream, first):
        """The next line that begins so; gdb has things of its own to say."""
        while line := stream.readline():
            if line.startswith(first):
                return line
        check(False, f'no line {first!r} from {self.path}')
        return None

    def counters(self):
        """The line that SIGUSR1 prints."""
        os.kill(self.pid, signal.SIGUSR1)
        return json.loads(self._line(self.process.stderr, '{'))

    def hits(self):
        """Stop the program, for good: {probe: [[thread, argument...], ...]}"""
        os.kill(self.pid, signal.SIGUSR2)
        return json.loads(wait_for(lambda: read(self.path).startswith('{') and read(self.path), 30,
                                   'what gdb saw'))


def check_gdb():
    """Skip without gdb, or where it may not trace."""
    if not shutil.which('gdb'):
        raise Skip('no gdb')
    done = subprocess.run([*GDB, '-ex', 'set startup-with-shell off', '-ex', 'run', '/bin/true'],
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
    if 'exited normally' not in done.stdout:
        comment(done.stdout)
        raise Skip('gdb may not trace here')


@contextlib.contextmanager
def connection(port):
    """A connection to a port of the guest: its socket, and a file to read from it."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(60)
        sock.connect(UDS)
        sock.sendall(b'CONNECT %d\n' % port)
        file = sock.makefile('rb')
        check(file.readline().startswith(b'OK '), 'no OK')
        yield sock, file
        sock.shutdown(socket.SHUT_WR)
        check_equal(file.read(), b'', 'end of file')


def converse():
    """A short ping-pong, and more than a window holds one way and the other."""
    with connection(ECHO) as (sock, file):
        for number in range(ROUNDS):
            sock.sendall(bytes([number] * (number + 1)))
            check_equal(file.read(number + 1), bytes([number] * (number + 1)), 'echo')
    with connection(SOURCE) as (_, file):
        check_equal(len(file.read()), BULK, 'from the source')
    with connection(SINK) as (sock, _):
        sock.sendall(bytes(BULK))


def settled(back_end, guest):
    """Counters of both that do not move any more; asking wakes the back end's one loop."""
    def stable():
        before = back_end.counters(), guest.counters()
        time.sleep(1.2)
        after = back_end.counters(), guest.counters()
        for counters, turns in (before[0], 1), (after[0], 0):
            for name in 'loop_wakeups', 'loop_events':
                counters['loop'][name] += turns
        return after if before == after else None
    return wait_for(stable, 60, 'quiet')


@contextlib.contextmanager
def traced_halves(*options):
    """Both, with a conversation behind them; options of the guest."""
    with contextlib.ExitStack() as stack:
        back_end = Traced(stack, 'back-end', 'vsock', '--guest-cid', str(CID), '--socket', SOCKET,
                          '--uds-path', UDS, '--print-ready')
        guest = Traced(stack, 'guest', 'guest', '--socket', SOCKET, '--echo', str(ECHO),
                       '--source', f'{SOURCE}:{BULK}', '--sink', str(SINK), '--queue-size', '8',
                       '--rx-buf', '4096', '--print-ready', *options)
        converse()
        yield back_end, guest


def check_counts(hits, counters, names):
    """Each probe fired as often as its counter counted."""
    for name in names:
        comment(f'{name}: {len(hits[name])}')
        if len(hits[name]) != counters[name]:
            comment(f'the last: {hits[name][-4:]}')
        check_equal(len(hits[name]), counters[name], name)
        check(counters[name] or name in MAY_BE_NONE, f'{name} never fired')


def check_packets(hits, counters, names):
    """Arguments of the packets: who, where, what and how much."""
    for name in sorted(PACKETS.keys() & set(names)):
        check_equal({packet[1] for packet in hits[name]}, {CID}, f'{name}: CID')
        check(all(set(PORTS) & set(packet[2:4]) for packet in hits[name]), f'{name}: ports')
        check_equal(sum(packet[5] for packet in hits[name]), counters[PACKETS[name]],
                    f'{name}: bytes')


def check_updates(hits, packets, updates):
    """Credit updates are those packets that say so; they tell of a window."""
    check_equal(len(hits[updates]), sum(packet[4] == CREDIT_UPDATE for packet in hits[packets]),
                f'{updates} among {packets}')
    check(all(update[4] > 0 for update in hits[updates]), f'{updates}: window')


def probes_and_counters():
    """gdb counts as many probes as the counters say, in both halves"""
    check_gdb()
    with traced_halves() as (back_end, guest):
        host_counters, guest_counters = settled(back_end, guest)
        host_hits, guest_hits = back_end.hits(), guest.hits()
    device = host_counters['devices'][0]
    check_counts(host_hits, device['host'], HOST)
    check_counts(host_hits, device['vhost'], VHOST)
    check_counts(host_hits, host_counters['loop'], ['loop_wakeups'])
    check_counts(guest_hits, guest_counters, GUEST)
    of_guest = [hit for hit in guest_hits['loop_wakeups'] if hit[0] == GUEST_LOOP]
    check_counts({'loop_wakeups': of_guest}, guest_counters, ['loop_wakeups'])
    check_equal(len({hit[1] for hit in guest_hits['loop_wakeups']}), 2, 'loops of the guest')
    check_packets(host_hits, device['host'], HOST)
    check_packets(guest_hits, guest_counters, GUEST)
    check_updates(host_hits, 'to_guest_packets', 'credit_updates')
    check_updates(guest_hits, 'tx_packets', 'tx_credit_updates')


def senders(hits, name):
    """Threads that put packets with data onto the ring."""
    return {hit[0] for hit in hits[name] if hit[4] == DATA}


def direct_packets_pass_by_the_worker():
    """packets that count as direct are put onto the ring by the thread that sends, others not"""
    check_gdb()
    with traced_halves('--tune', 'direct-tx=on') as (back_end, guest):
        _, counters = settled(back_end, guest)
        hits = guest.hits()
    check(counters['tx_direct'], 'no packet was direct')
    check_equal(senders(hits, 'tx_direct'), {PROGRAM_LOOP}, 'threads of direct packets')
    with traced_halves('--tune', 'direct-tx=off') as (back_end, guest):
        _, counters = settled(back_end, guest)
        hits = guest.hits()
    check_equal(counters['tx_direct'], 0, 'direct packets with direct-tx=off')
    check_counts(hits, counters, GUEST)
    check_equal(senders(hits, 'tx_packets'), {GUEST_LOOP}, 'threads of queued packets')


if __name__ == '__main__':
    try:
        sys.exit(run_cases((probes_and_counters, direct_packets_pass_by_the_worker), 150))
    finally:
        shutil.rmtree(WORK)
