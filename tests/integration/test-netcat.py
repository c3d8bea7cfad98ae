#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ringferry connect and listen, as a user of a shell sees them.

RF_BIN is the program. The peer is socat where it can be, else a few lines of Python.
"""
import contextlib
import hashlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'guest'))
# pylint: disable=wrong-import-position
from tap import Skip, check, check_equal, run_cases, wait_for  # noqa: E402

BIN = os.environ.get('RF_BIN', 'build/ringferry')
MIB = 1 << 20
WORK = tempfile.mkdtemp(prefix='rf-test-netcat-')
UDS = os.path.join(WORK, 'uds')


def seeded(seed, length=16 * MIB):
    """Bytes that are the same each time."""
    return random.Random(seed).randbytes(length)


UP, DOWN = seeded(1), seeded(2)


def sha256(data):
    """As text, so that a difference is readable."""
    return hashlib.sha256(data).hexdigest()


@contextlib.contextmanager
def netcat(*arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE):
    """A running ringferry, killed in the end if it still runs."""
    with subprocess.Popen([BIN, *arguments], stdin=stdin, stdout=stdout,
                          stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def listener_at(path, backlog=5):
    """A unix socket that listens."""
    sock = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    sock.bind(path)
    sock.listen(backlog)
    sock.settimeout(20)
    return sock


class BackEnd:
    """A back end that says yes to one connection, then does what @serve says with it."""

    def __init__(self, serve, answer=b'OK 1073741824\n'):
        self.listener = listener_at(UDS)
        self.serve = serve
        self.answer = answer
        self.line = b''
        self.result = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        """The thread."""
        conn, _ = self.listener.accept()
        with conn:
            while not self.line.endswith(b'\n'):
                self.line += conn.recv(1)
            conn.sendall(self.answer)
            self.result = self.serve(conn)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.thread.join(20)
        self.listener.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(UDS)


def receive_all(conn):
    """Everything up to end of file."""
    parts = []
    while part := conn.recv(262144):
        parts.append(part)
    return b''.join(parts)


def both_ways(conn):
    """Send DOWN and receive to end of file at once; what came."""
    def send():
        conn.sendall(DOWN)
        conn.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    received = receive_all(conn)
    sender.join(20)
    return received


def answer_late(conn):
    """The number of bytes up to end of file, two seconds after it."""
    received = receive_all(conn)
    time.sleep(2)
    conn.sendall(b'%d bytes' % len(received))
    return received


def check_ended(process, status, line=None, seconds=20):
    """The program ended with @status after exactly one error line, or none."""
    process.wait(seconds)
    errors = process.stderr.read().decode()
    check_equal((process.returncode, errors), (status, line + '\n' if line else ''), 'its end')


def connect_both_ways():
    """connect: 16 MiB each way at once."""
    with BackEnd(both_ways) as back_end, netcat('connect', UDS, '52') as nc:
        out, err = nc.communicate(UP, 40)
    check_equal((nc.returncode, err), (0, b''), 'its end')
    check_equal(back_end.line, b'CONNECT 52\n', 'the request')
    check_equal(sha256(out), sha256(DOWN), 'SHA-256 of standard output')
    check_equal(sha256(back_end.result), sha256(UP), 'SHA-256 of standard input')


def connect_data_behind_ok():
    """connect: bytes right behind the OK line are not lost."""
    with BackEnd(receive_all, b'OK 7\nhello\nagain') as back_end, \
            netcat('connect', UDS, '7') as nc:
        out, err = nc.communicate(b'x', 20)
    check_equal((nc.returncode, out, err), (0, b'hello\nagain', b''), 'its end')
    check_equal(back_end.result, b'x', 'what was sent')


def connect_half_close():
    """connect: an answer two seconds after the end of standard input."""
    with BackEnd(answer_late), netcat('connect', UDS, '7') as nc:
        out, err = nc.communicate(b'question', 20)
    check_equal((nc.returncode, out, err), (0, b'8 bytes', b''), 'its end')


def connect_peer_half_closes():
    """connect: goes on sending after the peer has ended its direction."""
    def serve(conn):
        conn.sendall(b'done')
        conn.shutdown(socket.SHUT_WR)
        return receive_all(conn)
    with BackEnd(serve) as back_end, netcat('connect', UDS, '7') as nc:
        check_equal(nc.stdout.read(4), b'done', 'what came')
        time.sleep(0.5)
        check(nc.poll() is None, 'it ended although only one direction had')
        out, err = nc.communicate(b'late', 20)
    check_equal((nc.returncode, out, err), (0, b'', b''), 'its end')
    check_equal(back_end.result, b'late', 'what was sent')


def connect_peer_closes_idle():
    """connect: ends when the peer has closed altogether, with standard input still open."""
    with BackEnd(lambda conn: conn.sendall(b'bye')), netcat('connect', UDS, '7') as nc:
        nc.wait(10)
        check_equal((nc.returncode, nc.stdout.read(), nc.stderr.read()), (0, b'bye', b''), 'its end')


def connect_peer_closes_early():
    """connect: what the peer did not take is an error, after all of what it sent."""
    def serve(conn):
        conn.sendall(DOWN[:100000])
        conn.recv(1000)
    with BackEnd(serve), netcat('connect', UDS, '7') as nc:
        out, err = nc.communicate(UP, 20)
    check_equal(nc.returncode, 1, 'exit status')
    check_equal(sha256(out), sha256(DOWN[:100000]), 'SHA-256 of standard output')
    check_equal(err, b'ringferry connect: connection: the peer closed it before it had taken '
                     b'everything\n', 'error')


def connect_output_closes():
    """connect: ends with an error when nobody reads its output any more."""
    def serve(conn):
        with contextlib.suppress(OSError):
            conn.sendall(DOWN)
    with BackEnd(serve), netcat('connect', UDS, '7') as nc:
        nc.stdout.read(10)
        nc.stdout.close()
        check_ended(nc, 1, 'ringferry connect: standard output: Broken pipe')


def connect_input_fails():
    """connect: an input that cannot be read is an error."""
    directory = os.open('/', os.O_RDONLY)
    with BackEnd(receive_all), netcat('connect', UDS, '7', stdin=directory) as nc:
        check_ended(nc, 1, 'ringferry connect: standard input: Is a directory')
    os.close(directory)


def connect_without_descriptors():
    """connect: where standard input or output was closed, the connection does not take its place."""
    def serve(conn):
        conn.sendall(b'for standard output')
        return receive_all(conn)
    for closed, name in (('<&-', 'input'), ('>&-', 'output')):
        with BackEnd(serve) as back_end, subprocess.Popen(
                ['sh', '-c', f'exec "$0" connect "$1" 7 {closed}', BIN, UDS],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE) as process:
            check_ended(process, 1, f'ringferry connect: standard {name}: Bad file descriptor')
        check_equal(back_end.result, b'', 'what came back')


def connect_slow_output():
    """connect: a reader that pauses loses nothing, and standard input goes on meanwhile."""
    with BackEnd(both_ways) as back_end, netcat('connect', UDS, '7') as nc:
        nc.stdin.write(UP)
        nc.stdin.close()
        time.sleep(1)
        out = nc.stdout.read()
        check_ended(nc, 0)
    check_equal(sha256(out), sha256(DOWN), 'SHA-256 of standard output')
    check_equal(sha256(back_end.result), sha256(UP), 'SHA-256 of standard input')


def connect_waits():
    """connect: --wait lasts until a back end appears, and no longer than told."""
    start = time.monotonic()
    with netcat('connect', '--wait', '20', UDS, '7') as nc:
        time.sleep(1)
        check(nc.poll() is None, 'it did not wait')
        with BackEnd(receive_all):
            out, err = nc.communicate(b'', 20)
    check_equal((nc.returncode, out, err), (0, b'', b''), 'its end')
    check(time.monotonic() - start < 5, 'it waited too long')
    start = time.monotonic()
    with netcat('connect', '--wait', '1', UDS, '7') as nc:
        check_ended(nc, 1, f'ringferry connect: {UDS}: no such socket: is the back end running?')
    check(1 <= time.monotonic() - start < 5, 'it did not wait for a second')


def connect_errors():
    """connect: one line for each thing that goes wrong."""
    with netcat('connect', UDS, '7') as nc:
        check_ended(nc, 1, f'ringferry connect: {UDS}: no such socket: is the back end running?')
    refused = (f'ringferry connect: {UDS}: refused: is the back end running, and does the guest '
               'listen on port 7?')
    listener_at(UDS).close()
    with netcat('connect', UDS, '7') as nc:
        check_ended(nc, 1, refused)
    with BackEnd(lambda conn: None, b''), netcat('connect', UDS, '7') as nc:
        check_ended(nc, 1, refused)
    with BackEnd(lambda conn: None, b'HELLO\n'), netcat('connect', UDS, '7') as nc:
        check_ended(nc, 1, f'ringferry connect: {UDS}: the answer is not "OK PORT": is this a '
                           'hybrid vsock socket?')
    long = '/' + 'x' * 150
    with netcat('connect', long, '7') as nc:
        check_ended(nc, 1, f'ringferry connect: {long}: the path is too long for a socket: '
                           'allowed are 107 bytes')
    with netcat('connect', UDS, '4294967295') as nc:
        check_ended(nc, 2, 'ringferry connect: PORT: "4294967295" is no port; allowed: a number '
                           'from 0 to 4294967294')
    with netcat('connect', '', '1') as nc:
        check_ended(nc, 2, 'ringferry connect: UDS: the path is empty; allowed: a path')
    with netcat('connect', UDS) as nc:
        check_ended(nc, 2, 'ringferry connect: operands: 1 given, too few; allowed: UDS PORT')


def program_errors():
    """ringferry: unknown subcommands and options are named with what is allowed."""
    with netcat('konnect') as nc:
        nc.wait(20)
        line = nc.stderr.read().decode()
        check_equal((nc.returncode, line.count('\n')), (2, 1), 'its end')
        check(line.startswith('ringferry: konnect: unknown subcommand; allowed: '), line)
        for name in ('connect', 'listen'):
            check(f' {name},' in line, f'{name} is not named')
    with netcat() as nc:
        nc.wait(20)
        check_equal((nc.returncode, nc.stderr.read().count(b'\n')), (2, 1), 'no subcommand')
    with netcat('--version') as nc:
        out, err = nc.communicate(timeout=20)
        check(out.startswith(b'ringferry ') and not err and nc.returncode == 0, '--version')
    with netcat('--help', stdout=os.open('/dev/full', os.O_WRONLY)) as nc:
        check_ended(nc, 1, 'ringferry: standard output: No space left on device')


def await_ready(process):
    """Read the line of --print-ready."""
    check_equal(process.stderr.readline(), b'ready\n', 'readiness')


def connected_to(port):
    """A connection as the back end makes it for the guest."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(f'{UDS}_{port}')
    return sock


def listen_both_ways():
    """listen: 16 MiB each way at once, with socat."""
    if not shutil.which('socat'):
        raise Skip('no socat')
    name = os.path.join(WORK, 'down')
    with open(name, 'wb') as file:
        file.write(DOWN)
    with netcat('listen', '--print-ready', UDS, '99') as nc:
        await_ready(nc)
        with open(name, 'rb') as file, subprocess.Popen(
                ['socat', '-t20', '-', f'UNIX-CONNECT:{UDS}_99'], stdin=file,
                stdout=subprocess.PIPE) as socat:
            received = []
            reader = threading.Thread(target=lambda: received.append(socat.stdout.read()))
            reader.start()
            out, err = nc.communicate(UP, 40)
            reader.join(20)
    os.unlink(name)
    check_equal((nc.returncode, err), (0, b''), 'its end')
    check_equal(sha256(out), sha256(DOWN), 'SHA-256 of standard output')
    check_equal(sha256(received[0]), sha256(UP), 'SHA-256 of standard input')


def listen_half_close():
    """listen: an answer two seconds after the end of standard input."""
    with netcat('listen', '--print-ready', UDS, '99') as nc:
        await_ready(nc)
        with connected_to(99) as conn:
            thread = threading.Thread(target=lambda: (answer_late(conn), conn.close()))
            thread.start()
            out, err = nc.communicate(b'question', 20)
            thread.join(20)
    check_equal((nc.returncode, out, err), (0, b'8 bytes', b''), 'its end')


def listen_takes_one():
    """listen: one connection; then the socket file is gone, and the next one is refused."""
    with netcat('listen', '--print-ready', UDS, '99') as nc:
        await_ready(nc)
        with connected_to(99) as conn:
            conn.sendall(b'x')
            check_equal(nc.stdout.read(1), b'x', 'what came')
            check(not os.path.exists(f'{UDS}_99'), 'the socket file is still there')
        check_ended(nc, 0)


def listen_cleans_up():
    """listen: SIGINT, SIGTERM and SIGHUP end it as they should, and its socket file goes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with netcat('listen', '--print-ready', UDS, '99') as nc:
            await_ready(nc)
            check(os.path.exists(f'{UDS}_99'), 'no socket file')
            nc.send_signal(number)
            check_ended(nc, -number)
        check(not os.path.exists(f'{UDS}_99'), f'the socket file stays after {number!r}')


def listen_steals_nothing():
    """listen: a live listener stays, a dead one's file is replaced, and errors are one line."""
    with listener_at(f'{UDS}_99') as live, netcat('listen', UDS, '99') as nc:
        check_ended(nc, 1, f'ringferry listen: {UDS}_99: somebody listens there already, or the '
                           'file is no socket')
        check(os.path.exists(f'{UDS}_99'), 'the file of a live listener is gone')
        live.close()
    with netcat('listen', '--print-ready', UDS, '99') as nc:
        await_ready(nc)
        connected_to(99).close()
        check_ended(nc, 0)
    with netcat('listen', '/nowhere/uds', '99') as nc:
        check_ended(nc, 1, 'ringferry listen: /nowhere/uds_99: no such directory')


def waiting_costs_nothing():
    """connect: half-closed either way, it sleeps."""
    release = threading.Event()

    def serve(conn):
        conn.shutdown(socket.SHUT_WR)
        release.wait(20)
        return receive_all(conn)

    def cpu_ticks(pid):
        with open(f'/proc/{pid}/stat', encoding='ascii') as file:
            return sum(map(int, file.read().rsplit(')', 1)[1].split()[11:13]))
    with BackEnd(serve), netcat('connect', UDS, '7') as nc:
        wait_for(lambda: cpu_ticks(nc.pid) >= 0, 5, 'start')
        time.sleep(0.5)
        before = cpu_ticks(nc.pid)
        time.sleep(1)
        check(cpu_ticks(nc.pid) - before <= 1, 'it runs although nothing happens')
        release.set()
        nc.communicate(b'', 20)


if __name__ == '__main__':
    try:
        STATUS = run_cases([
            connect_both_ways, connect_data_behind_ok, connect_half_close, connect_peer_half_closes,
            connect_peer_closes_idle, connect_peer_closes_early, connect_output_closes,
            connect_input_fails, connect_without_descriptors, connect_slow_output, connect_waits, connect_errors, program_errors,
            listen_both_ways, listen_half_close, listen_takes_one, listen_cleans_up,
            listen_steals_nothing, waiting_costs_nothing,
        ])
    finally:
        shutil.rmtree(WORK)
    sys.exit(STATUS)
