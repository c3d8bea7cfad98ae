#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ringferry guest on ringferry vsock, as a user of a shell sees them.

RF_BIN is the program, RF_GUEST_ECHO the example of the library.
"""
import contextlib
import hashlib
import json
import os
import random
import re
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
from tap import check, check_equal, run_cases, wait_for  # noqa: E402

BIN = os.environ.get('RF_BIN', 'build/ringferry')
EXAMPLE = os.environ.get('RF_GUEST_ECHO', 'build/examples/guest-echo')
MIB = 1 << 20
WORK = tempfile.mkdtemp(prefix='rf-test-guest-')
SOCKET = os.path.join(WORK, 'vhost')
UDS = os.path.join(WORK, 'uds')
MASK = (1 << 64) - 1


def seeded(seed, length):
    """Bytes that are the same each time."""
    return random.Random(seed).randbytes(length)


def sha256(data):
    """As text, so that a difference is readable."""
    return hashlib.sha256(data).hexdigest()


def source_bytes(seed, length):
    """What a source sends, by the description in cmd_guest.h."""
    words = bytearray()
    for i in range((length + 7) // 8):
        z = (seed + (i + 1) * 0x9e3779b97f4a7c15) & MASK
        z = ((z ^ z >> 30) * 0xbf58476d1ce4e5b9) & MASK
        z = ((z ^ z >> 27) * 0x94d049bb133111eb) & MASK
        words += (z ^ z >> 31).to_bytes(8, 'little')
    return bytes(words[:length])


@contextlib.contextmanager
def running(*command, stdin=subprocess.DEVNULL):
    """A program, killed in the end if it still runs."""
    with subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def back_end(*arguments):
    """ringferry vsock, ready."""
    for path in SOCKET, UDS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    with running(BIN, 'vsock', '--guest-cid', '4', '--socket', SOCKET, '--uds-path', UDS,
                 '--print-ready', *arguments) as process:
        check_equal(process.stdout.readline(), b'ready\n', 'the back end')
        yield process


@contextlib.contextmanager
def services(*arguments):
    """ringferry guest with services, ready."""
    with running(BIN, 'guest', '--socket', SOCKET, '--print-ready', *arguments) as process:
        check_equal(process.stdout.readline(), b'ready 4\n', 'the guest')
        yield process


def host_connect(port):
    """A connection to a port of the guest."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(UDS)
    sock.sendall(b'CONNECT %d\n' % port)
    line = b''
    while not line.endswith(b'\n'):
        byte = sock.recv(1)
        check(byte, f'port {port} of the guest is closed')
        line += byte
    check(line.startswith(b'OK '), f'answer {line!r}')
    return sock


def host_listen(port):
    """A listener for the guest's connections to a port of the host."""
    sock = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f'{UDS}_{port}')
    sock.bind(f'{UDS}_{port}')
    sock.listen(5)
    sock.settimeout(20)
    return sock


def receive_all(sock):
    """Everything up to end of file."""
    parts = []
    while part := sock.recv(262144):
        parts.append(part)
    return b''.join(parts)


def exchange(sock, data):
    """Send everything and receive to end of file at once; what came."""
    def send():
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    received = receive_all(sock)
    sender.join(20)
    return received


def line_of(process, kind, port, data):
    """The next line of standard output tells of a connection with this data."""
    line = process.stdout.readline().decode()
    wanted = rf'{kind} port={port} peer=2:\d+ bytes={len(data)} sha256={sha256(data)}\n'
    check(re.fullmatch(wanted, line), f'{line!r} is not {wanted!r}')


def check_ended(process, status, errors='', seconds=20):
    """The program ends with @status and these lines on standard error."""
    process.wait(seconds)
    check_equal((process.returncode, process.stderr.read().decode()), (status, errors), 'its end')


def counters_of(process):
    """The line that SIGUSR1 prints."""
    process.send_signal(signal.SIGUSR1)
    return json.loads(process.stderr.readline())


def all_services():
    """echo, sink and source, 16 MiB each, and their lines"""
    data = seeded(1, 16 * MIB)
    made = source_bytes(1, 100001)
    with back_end(), services('--echo', '7', '--sink', '9', '--source', '19:100001',
                              '--source', '20:16m') as guest:
        with host_connect(7) as sock:
            check_equal(sha256(exchange(sock, data)), sha256(data), 'echo')
        with host_connect(9) as sock:
            check_equal(exchange(sock, data), b'', 'sink')
        line_of(guest, 'sink', 9, data)
        with host_connect(19) as sock:
            check_equal(sha256(receive_all(sock)), sha256(made), 'source')
        line_of(guest, 'source', 19, made)
        with host_connect(20) as sock:
            big = receive_all(sock)
        check_equal((len(big), big[:100000]), (16 * MIB, made[:100000]), 'source')
        line_of(guest, 'source', 20, big)
        guest.terminate()
        check_ended(guest, 0)


def other_seed():
    """--seed gives other bytes, and rings of two entries with small buffers the same data"""
    made = source_bytes(MASK, 300000)
    data = seeded(2, 300000)
    with back_end(), services('--source', '19:300000', '--seed', str(MASK), '--echo', '7',
                              '--queue-size', '2', '--rx-buf', '256'):
        with host_connect(19) as sock:
            check_equal(sha256(receive_all(sock)), sha256(made), 'source')
        with host_connect(7) as sock:
            check_equal(sha256(exchange(sock, data)), sha256(data), 'echo')


def many_connections():
    """300 connections at once, all of them used"""
    with back_end(), services('--echo', '7', '--sink', '9') as guest:
        socks = [host_connect(7) for _ in range(300)]
        for i, sock in enumerate(socks):
            sock.sendall(b'%05d' % i)
        for i, sock in enumerate(socks):
            check_equal(sock.recv(5, socket.MSG_WAITALL), b'%05d' % i, 'echo')
        for sock in socks:
            sock.shutdown(socket.SHUT_WR)
        for sock in socks:
            check_equal(sock.recv(1), b'', 'end of file')
            sock.close()
        wait_for(lambda: counters_of(guest)['ended_closed'] == 300, 5, 'all have ended')
        with open(f'/proc/{guest.pid}/task/{guest.pid}/children', encoding='ascii') as children:
            check_equal(children.read(), '', 'processes')
        check(len(os.listdir(f'/proc/{guest.pid}/task')) < 5, 'a thread per connection')


def guest_connects():
    """connect: 8 MiB each way at once"""
    up, down = seeded(3, 8 * MIB), seeded(4, 8 * MIB)
    with back_end(), host_listen(1234) as listener, \
            running(BIN, 'guest', '--socket', SOCKET, 'connect', '2', '1234',
                    stdin=subprocess.PIPE) as guest:
        result = []

        def serve():
            conn, _ = listener.accept()
            with conn:
                result.append(exchange(conn, down))
        host = threading.Thread(target=serve, daemon=True)
        host.start()
        out, err = guest.communicate(up, 40)
        host.join(20)
    check_equal((guest.returncode, err), (0, b''), 'its end')
    check_equal(sha256(out), sha256(down), 'SHA-256 of standard output')
    check_equal(sha256(result[0]), sha256(up), 'SHA-256 of standard input')


def guest_listens():
    """listen: 8 MiB each way at once; a second connection is refused"""
    up, down = seeded(5, 8 * MIB), seeded(6, 8 * MIB)
    with back_end(), running(BIN, 'guest', '--socket', SOCKET, '--print-ready', 'listen', '99',
                             stdin=subprocess.PIPE) as guest:
        check_equal(guest.stderr.readline(), b'ready 4\n', 'the guest')
        result = []

        def host():
            with host_connect(99) as sock:
                result.append(exchange(sock, down))
        thread = threading.Thread(target=host, daemon=True)
        thread.start()
        out, err = guest.communicate(up, 40)
        thread.join(20)
    check_equal((guest.returncode, err), (0, b''), 'its end')
    check_equal(sha256(out), sha256(down), 'SHA-256 of standard output')
    check_equal(sha256(result[0]), sha256(up), 'SHA-256 of standard input')


def answer_after_eof():
    """Half-close both ways: an answer two seconds after the end of file arrives"""
    with back_end(), host_listen(1234) as listener, \
            running(BIN, 'guest', '--socket', SOCKET, 'connect', '2', '1234',
                    stdin=subprocess.PIPE) as guest:
        guest.stdin.write(b'question')
        guest.stdin.close()
        conn, _ = listener.accept()
        with conn:
            conn.settimeout(20)
            check_equal(receive_all(conn), b'question', 'what came')
            time.sleep(2)
            conn.sendall(b'answer')
        check_equal(guest.stdout.read(), b'answer', 'the answer')
        check_ended(guest, 0)
    with back_end(), running(BIN, 'guest', '--socket', SOCKET, '--print-ready', 'listen', '99',
                             stdin=subprocess.PIPE) as guest:
        check_equal(guest.stderr.readline(), b'ready 4\n', 'the guest')
        with host_connect(99) as sock:
            sock.shutdown(socket.SHUT_WR)
            time.sleep(2)
            check(guest.poll() is None, 'the guest has ended')
            guest.stdin.write(b'late')
            guest.stdin.close()
            check_equal(receive_all(sock), b'late', 'what came')
        check_ended(guest, 0)


def quiet_stdin():
    """A connection that the host closed ends the program, though standard input stays open"""
    with back_end(), host_listen(1234) as listener, \
            running(BIN, 'guest', '--socket', SOCKET, 'connect', '2', '1234',
                    stdin=subprocess.PIPE) as guest:
        conn, _ = listener.accept()
        conn.sendall(b'bye')
        conn.close()
        check_equal(guest.stdout.read(3), b'bye', 'what came')
        check_ended(guest, 0)


def refused():
    """connect to a port of the host where nobody listens: reset at once, not a timeout"""
    with back_end():
        start = time.monotonic()
        with running(BIN, 'guest', '--socket', SOCKET, 'connect', '2', '999') as guest:
            check_ended(guest, 1, 'ringferry guest: connection: refused: does the peer listen on '
                        'that port?\n')
        check(time.monotonic() - start < 1.5, 'it took as long as a timeout')
        with running(BIN, 'guest', '--socket', SOCKET, 'connect', '3', '999') as guest:
            check_ended(guest, 1, 'ringferry guest: connection: the back end does not serve that '
                        'CID; 2 is the host\'s\n')


def back_end_restarts():
    """The back end is killed and comes back: connections break, ports stay"""
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(back_end())
        guest = stack.enter_context(services('--sink', '9', '--echo', '7', '--source', '19:1g'))
        sink, source = host_connect(9), host_connect(19)
        sink.sendall(b'unfinished')
        source.recv(1)
        wait_for(lambda: counters_of(guest)['rx_bytes'] == 10, 5, 'the bytes arrive')
        first.kill()
        first.wait()
        lines = sorted(guest.stdout.readline().decode() for _ in range(2))
        check(re.fullmatch(r'sink port=9 peer=2:\d+ bytes=10 sha256=[0-9a-f]{64} '
                           'error=ECONNRESET\n', lines[0]), f'{lines[0]!r}')
        check(re.fullmatch(r'source port=19 peer=2:\d+ bytes=\d+ sha256=[0-9a-f]{64} '
                           'error=ECONNRESET\n', lines[1]), f'{lines[1]!r}')
        line = guest.stderr.readline().decode()
        check(line.startswith('ringferry guest: back end ') and 'is gone' in line, line)
        stack.enter_context(back_end())
        wait_for(lambda: counters_of(guest)['attachments'] == 2, 5, 'the guest comes back')
        with host_connect(7) as sock:
            check_equal(exchange(sock, b'again'), b'again', 'echo')
        sink.close()
        source.close()


def counters():
    """Counters: nothing bounced for a reader that keeps up, no wake-ups while idle"""
    data = seeded(7, 32 * MIB)
    with back_end(), services('--sink', '9') as guest:
        with host_connect(9) as sock:
            exchange(sock, data)
        line_of(guest, 'sink', 9, data)
        time.sleep(0.3)
        before = counters_of(guest)
        check_equal((before['rx_bytes'], before['rx_bounced_bytes'], before['accepted'],
                     before['ended_closed']), (32 * MIB, 0, 1, 1), 'counters')
        with host_connect(9):
            time.sleep(0.2)
            before = counters_of(guest)
            time.sleep(2.5)
            after = counters_of(guest)
        check_equal(after['loop_wakeups'], before['loop_wakeups'], 'wake-ups')


def back_end_polls():
    """ringferry vsock --poll-us: fewer kicks than packets, and rest when nothing happens"""
    for poll_us in '20', '1000', 'auto':
        with back_end('--poll-us', poll_us) as process, services('--echo', '7'):
            with host_connect(7) as sock:
                for number in range(300):
                    data = seeded(number, 512)
                    sock.sendall(data)
                    check_equal(sock.recv(512, socket.MSG_WAITALL), data, 'echo')
                # There is one timer in the first second.
                time.sleep(1.1)
                before = counters_of(process)
                time.sleep(0.5)
                after = counters_of(process)
            device = before['devices'][0]
            check(device['host']['from_guest_packets'] >= 300, 'packets')
            # A millisecond is long enough for an answer even while other tests run.
            if poll_us == '1000':
                check(device['vhost']['vu_kicks'] < device['host']['from_guest_packets'] / 2,
                      f'kicks: {before}')
            # The signal is one.
            check_equal(after['loop']['loop_wakeups'], before['loop']['loop_wakeups'] + 1,
                        f'{poll_us}: wake-ups')
            for name in 'loop_polls', 'loop_poll_ns':
                check_equal(after['loop'][name], before['loop'][name], f'{poll_us}: {name}')


def switches():
    """--tune: what is set counts, and is printed with the counters"""
    data = seeded(7, 64 * 1024)
    with back_end(), services('--source', '19:64k', '--tune', 'max-packet=4k', '--tune',
                              'credit=linux+credit=eager') as guest:
        before = counters_of(guest)
        check_equal({**before['switches'], 'max-packet': '4k', 'credit': 'eager'},
                    before['switches'], 'switches')
        with host_connect(19) as sock:
            check_equal(len(receive_all(sock)), len(data), 'bytes')
        after = counters_of(guest)
        check(after['tx_packets'] - before['tx_packets'] >= 16, 'packets of 4 KiB')


def signals():
    """SIGTERM and SIGINT end it cleanly, whatever it waits for"""
    cases = (['--echo', '7'], ['listen', '5'], ['connect', '2', '1234'])
    with back_end(), host_listen(1234):
        for number in signal.SIGTERM, signal.SIGINT:
            for arguments in cases:
                with running(BIN, 'guest', '--socket', SOCKET, '--print-ready', *arguments,
                             stdin=subprocess.PIPE) as guest:
                    ready = guest.stdout if arguments[0] == '--echo' else guest.stderr
                    check_equal(ready.readline(), b'ready 4\n', 'the guest')
                    time.sleep(0.2)
                    guest.send_signal(number)
                    check_ended(guest, 0, seconds=5)


def bad_arguments():
    """Bad arguments: one line that names the option and what is allowed, status 2"""
    rows = [
        (['--echo', '7'], '--socket'),
        (['--socket', 'S'], 'services'),
        (['--socket', 'S', '--vhost-device', 'D', '--echo', '7'], '--vhost-device'),
        (['--vhost-device', 'D', '--echo', '7'], '--guest-cid'),
        (['--vhost-device', 'D', '--guest-cid', '2', '--echo', '7'], '--guest-cid'),
        (['--vhost-device', 'D', '--guest-cid', '4294967295', '--echo', '7'], '--guest-cid'),
        (['--socket', 'S', '--guest-cid', '5', '--echo', '7'], '--guest-cid'),
        (['--socket', 'S', '--echo', '4294967295'], '--echo'),
        (['--socket', 'S', '--echo', 'x'], '--echo'),
        (['--socket', 'S', '--sink', '-1'], '--sink'),
        (['--socket', 'S', '--source', '19'], '--source'),
        (['--socket', 'S', '--source', '19:'], '--source'),
        (['--socket', 'S', '--source', ':5'], '--source'),
        (['--socket', 'S', '--source', '19:5x'], '--source'),
        (['--socket', 'S', '--source', '99999999999:5'], '--source'),
        (['--socket', 'S', '--echo', '7', '--queue-size', '3'], '--queue-size'),
        (['--socket', 'S', '--echo', '7', '--queue-size', '65536'], '--queue-size'),
        (['--socket', 'S', '--echo', '7', '--rx-buf', '255'], '--rx-buf'),
        (['--socket', 'S', '--echo', '7', '--log-level', 'loud'], '--log-level'),
        (['--socket', 'S', '--echo', '7', '--poll-us', '1001'], 'auto or a number from 0 to 1000'),
        (['--socket', 'S', '--echo', '7', '--tune', 'rx-buf=8k'], 'rx-buf=ewma|64k|4k'),
        (['--socket', 'S', '--echo', '7', '--tune', 'poll-by=me'], 'poll-by=caller|worker'),
        (['--socket', 'S', '--echo', '7', '--tune', 'max-packet'], '--tune'),
        (['--socket', 'S', '--echo', '7', '--tune', 'max-packet=2k'], 'max-packet=64k|4k'),
        (['--socket', 'S', '--echo', '7', '--tune', 'credit=eager,x=on'], 'one of direct-tx, '),
        (['--socket', 'S', '--echo', '7', *['--tune', 'max-packet=64k'] * 100], 'each switch once'),
        (['--socket', 'S', '--echo', '7', 'connect', '2', '5'], 'connect'),
        (['--socket', 'S', 'connect', '2'], 'operands'),
        (['--socket', 'S', 'listen', '2', '3'], 'operands'),
        (['--socket', 'S', 'listen', 'x'], 'PORT'),
        (['--socket', 'S', 'connect', 'x', '3'], 'CID'),
        (['--socket', 'S', 'dial', '2', '3'], 'operands'),
    ]
    for arguments, name in rows:
        result = subprocess.run([BIN, 'guest', *arguments], capture_output=True, text=True,
                                timeout=20, check=False)
        check_equal((result.returncode, result.stdout, result.stderr.count('\n')), (2, '', 1),
                    f'{arguments}')
        check(name in result.stderr, f'{arguments}: {result.stderr!r} does not name {name}')
    with running(BIN, 'guest', '--socket', 'x' * 200, '--echo', '7') as guest:
        check_ended(guest, 1, f'ringferry guest: {"x" * 200}: the path is too long for a socket: '
                    'allowed are 107 bytes\n')
    with back_end(), running(BIN, 'guest', '--socket', SOCKET, '--echo', '7', '--sink',
                             '7') as guest:
        check_ended(guest, 1, 'ringferry guest: port 7: Address already in use\n')


def cannot_attach():
    """One line says why it cannot attach: no back end, another guest's, one that refuses"""
    rows = [
        ('nowhere', [], 'no such socket: is the back end running?'),
        ('sock', [], 'no back end has answered: is this its --socket, is it running, and without '
         'another guest?'),
        ('other', ['--queue-size', '32768'],
         'the back end breaks off: does another guest use it, or is --queue-size too large? '
         '(--log-level info tells more)'),
    ]
    with contextlib.ExitStack() as stack:
        stack.enter_context(back_end())
        stack.enter_context(services('--echo', '7'))
        paths = {'nowhere': SOCKET + '-none', 'sock': SOCKET, 'other': SOCKET + '-other'}
        stack.enter_context(running(BIN, 'vsock', '--guest-cid', '5', '--socket', paths['other'],
                                    '--uds-path', UDS + '-other'))
        guests = [stack.enter_context(running(BIN, 'guest', '--socket', paths[which], '--echo', '8',
                                              *arguments)) for which, arguments, _ in rows]
        for guest, (which, _, line) in zip(guests, rows):
            check_ended(guest, 1, f'ringferry guest: {paths[which]}: {line}\n')


def library_example():
    """examples/guest-echo runs as it says"""
    with back_end(), running(EXAMPLE, SOCKET, '7') as guest:
        check_equal(guest.stdout.readline(), b'CID 4 listens on port 7\n', 'its line')
        with host_connect(7) as sock:
            check_equal(exchange(sock, b'hello' * 50000), b'hello' * 50000, 'echo')
        check_ended(guest, 0)


if __name__ == '__main__':
    CASES = [all_services, other_seed, many_connections, guest_connects, guest_listens,
             answer_after_eof, quiet_stdin, refused, back_end_restarts, counters,
             back_end_polls, switches, signals,
             bad_arguments, cannot_attach, library_example]
    try:
        sys.exit(run_cases(CASES))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
