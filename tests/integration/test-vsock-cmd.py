#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The program ringferry vsock: arguments, sockets, descriptors, readiness and signals.

RF_BIN is the program. Streams are tested elsewhere.
"""
import contextlib
import fcntl
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'guest'))
# pylint: disable=wrong-import-position
from tap import check, check_equal, run_cases, wait_for  # noqa: E402

BIN = os.environ.get('RF_BIN', 'build/ringferry')
WORK = tempfile.mkdtemp(prefix='rf-test-vsock-')
FRONT = os.path.join(WORK, 'front')
UDS = os.path.join(WORK, 'uds')
CID = ('--guest-cid', '4')
PATHS = ('--socket', FRONT, '--uds-path', UDS)
GOOD = CID + PATHS


def clean():
    """Remove what a case left."""
    for name in os.listdir(WORK):
        os.unlink(os.path.join(WORK, name))


@contextlib.contextmanager
def running(*arguments, **options):
    """The program, ready; killed in the end if it still runs."""
    with subprocess.Popen((BIN, 'vsock', '--print-ready') + arguments, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          **options) as process:
        try:
            check_equal(process.stdout.readline(), 'ready\n', 'its first line')
            yield process
        finally:
            process.kill()
            clean()


def ended(process, status=0, errors=''):
    """The program ends by itself, with this status and on standard error this text."""
    process.wait(10)
    check_equal((process.returncode, process.stderr.read()), (status, errors), 'its end')


def refused(arguments, option, allowed, **options):
    """Exit status 2 and one line that names the option and what is allowed; nothing was opened."""
    done = subprocess.run((BIN, 'vsock') + tuple(arguments), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=10, check=False, **options)
    what = f'{arguments}: {done.stderr!r}'
    check_equal((done.returncode, done.stdout), (2, ''), what)
    check_equal(done.stderr.count('\n'), 1, what)
    check(done.stderr.startswith(f'ringferry vsock: {option}: '), what)
    check(allowed in done.stderr, what)
    check_equal(os.listdir(WORK), [], what)


def counters_of(process):
    """The line that SIGUSR1 prints."""
    process.send_signal(signal.SIGUSR1)
    return json.loads(process.stderr.readline())


def connect(path):
    """A connection to a socket of the program."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10)
    sock.connect(path)
    return sock


def mode_of(path):
    """The permissions of a socket."""
    status = os.lstat(path)
    check(stat.S_ISSOCK(status.st_mode), f'{path} is no socket')
    return stat.S_IMODE(status.st_mode)


def bad_numbers():
    """arguments out of range are refused"""
    for cid in ('0', '1', '2', '4294967295', '4294967296', '18446744073709551620', '-1', 'abc',
                '3x', '0x10', ''):
        refused(('--guest-cid', cid) + PATHS, '--guest-cid', '3 to 4294967294')
    for size in ('0', '1', '3', '100', '1000', '65536', '32769', '-2', 'x'):
        refused(GOOD + ('--queue-size', size), '--queue-size', '2 to 32768')
    for size in ('0', '4095', '1073741825', '2g', '1x', '-1', ''):
        refused(GOOD + ('--tx-buffer-size', size), '--tx-buffer-size', '4k to 1g')
    for mode in ('8', '999', '0o600', 'rw', '1000', '-1', ''):
        refused(GOOD + ('--socket-mode', mode), '--socket-mode', '0 to 0777')
        refused(GOOD + ('--uds-mode', mode), '--uds-mode', '0 to 0777')
    for number in ('-1', 'x', '2147483648', ''):
        refused(CID + ('--uds-path', UDS, '--fd', number), '--fd', '0 to 2147483647')
    for number in ('-1', '1001', '20us', 'Auto', ''):
        refused(GOOD + ('--poll-us', number), '--poll-us', 'auto or a number from 0 to 1000')


def bad_words():
    """words that mean nothing are refused"""
    refused(GOOD + ('--log-level', 'loud'), '--log-level', 'error, warning, info or debug')
    for value in ('', 'merge', 'x=on', '=', '=on'):
        refused(GOOD + ('--tune', value), '--tune', 'merge')
    refused(GOOD + ('--tune', 'merge=maybe'), '--tune', 'merge=on|off')
    refused(GOOD + ('--tune', 'credit=1'), '--tune', 'credit=batched|eager')
    refused(GOOD + ('--no-such',), '--no-such', '--guest-cid')
    refused(GOOD + ('word',), 'word', 'options only')


def missing():
    """options that are missing, or that exclude each other"""
    refused(CID + ('--socket', FRONT), '--uds-path', 'required')
    refused(CID + ('--uds-path', UDS), '--socket', 'required, unless --fd is given')
    refused(GOOD + ('--fd', '5'), '--fd', 'not allowed together with --socket')
    refused(CID + ('--socket', UDS, '--uds-path', UDS), '--uds-path', 'another path')
    for option in '--socket', '--uds-path':
        refused(GOOD + (option, ''), option, 'empty')


def path_lengths():
    """paths that are too long are refused, and the longest are used"""
    room = 107 - len(WORK) - 1
    refused(CID + ('--uds-path', UDS, '--socket', f'{WORK}/{"s" * (room + 1)}'), '--socket', '107')
    # <uds>_4294967295 must fit.
    refused(CID + ('--socket', FRONT, '--uds-path', f'{WORK}/{"u" * (room - 10)}'), '--uds-path',
            '96')
    longest = f'{WORK}/{"s" * room}', f'{WORK}/{"u" * (room - 11)}'
    with running(*CID, '--socket', longest[0], '--uds-path', longest[1]) as process:
        for path in longest:
            connect(path).close()
        process.terminate()
        ended(process)


def bad_descriptors():
    """--fd refuses what is no unix stream socket that listens or is connected"""
    with contextlib.ExitStack() as stack:
        def pair(kind):
            return [stack.enter_context(sock) for sock in socket.socketpair(socket.AF_UNIX, kind)]

        tcp = stack.enter_context(socket.socket())
        tcp.bind(('127.0.0.1', 0))
        tcp.listen()
        rows = (stack.enter_context(open('/dev/null', 'rb')), pair(socket.SOCK_DGRAM)[0],
                pair(socket.SOCK_SEQPACKET)[0], tcp, stack.enter_context(socket.socket()),
                stack.enter_context(socket.socket(socket.AF_UNIX)))
        for row in rows:
            number = str(row.fileno())
            refused(CID + ('--uds-path', UDS, '--fd', number), '--fd', 'unix stream socket',
                    pass_fds=[row.fileno()])
        refused(CID + ('--uds-path', UDS, '--fd', '99'), '--fd', 'unix stream socket')


def modes():
    """--socket-mode and --uds-mode, or what the umask leaves"""
    def umask():
        os.umask(0o027)
    rows = (((), 0o750, 0o750), (('--socket-mode', '600'), 0o600, 0o750),
            (('--uds-mode', '0666'), 0o750, 0o666),
            (('--socket-mode', '0', '--uds-mode', '777'), 0, 0o777))
    for arguments, front, uds in rows:
        with running(*GOOD, *arguments, preexec_fn=umask) as process:
            check_equal((mode_of(FRONT), mode_of(UDS)), (front, uds), f'modes with {arguments}')
            process.terminate()
            ended(process)


def ended_by_signals():
    """SIGTERM and SIGINT end it with status 0 and remove its sockets"""
    for number in signal.SIGTERM, signal.SIGINT:
        with running(*GOOD) as process:
            held = connect(FRONT), connect(UDS)
            process.send_signal(number)
            ended(process)
            check_equal(os.listdir(WORK), [], 'what is left')
            for sock in held:
                sock.close()


def removes_only_its_own():
    """sockets that another program put in place of its own stay"""
    with running(*GOOD) as process, socket.socket(socket.AF_UNIX) as other:
        os.unlink(FRONT)
        os.unlink(UDS)
        other.bind(FRONT)
        other.listen()
        with open(UDS, 'wb'):
            pass
        process.terminate()
        ended(process)
        check_equal(sorted(os.listdir(WORK)), ['front', 'uds'], 'what is left')


def paths_in_use():
    """a live socket is never taken, a stale one is, and a file is not"""
    with running(*GOOD) as process:
        for arguments, path in ((CID + PATHS, UDS),
                                (CID + ('--socket', FRONT, '--uds-path', UDS + '2'), FRONT)):
            done = subprocess.run((BIN, 'vsock') + arguments, capture_output=True, text=True,
                                  timeout=10, check=False)
            check_equal(done.returncode, 1, 'exit status')
            check_equal(done.stderr.count('\n'), 1, done.stderr)
            check(f'cannot listen on {path}: another program' in done.stderr, done.stderr)
        connect(FRONT).close()
        check_equal(counters_of(process)['devices'][0]['connections'], 0, 'connections')
        process.kill()
        process.wait()
        # Nobody listens there any more.
        with running(*GOOD) as second:
            connect(UDS).close()
            second.terminate()
            ended(second)
    with open(FRONT, 'wb'):
        pass
    done = subprocess.run((BIN, 'vsock') + GOOD, capture_output=True, text=True, timeout=10,
                          check=False)
    check_equal((done.returncode, os.listdir(WORK)), (1, ['front']), done.stderr)
    clean()


def listening_descriptor():
    """--fd with a listening socket: front ends come and go, and its file is left alone"""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(FRONT)
        listener.listen()
        number = listener.fileno()
        with running(*CID, '--uds-path', UDS, '--fd', str(number), pass_fds=[number]) as process:
            for front_ends in 1, 2, 3:
                connect(FRONT).close()
                wait_for(lambda want=front_ends: counters_of(process)['devices'][0]['host']
                         ['front_ends'] == want, 5, 'the next front end')
            process.terminate()
            ended(process)
            check_equal(os.listdir(WORK), ['front'], 'what is left')


def connected_descriptor():
    """--fd with a connected socket: the program ends with its front end"""
    ours, theirs = socket.socketpair()
    with running(*CID, '--uds-path', UDS, '--fd', str(theirs.fileno()),
                 pass_fds=[theirs.fileno()]) as process:
        theirs.close()
        # GET_FEATURES is answered.
        ours.sendall(b'\x01\0\0\0\x01\0\0\0\0\0\0\0')
        check_equal(ours.recv(20)[:12], b'\x01\0\0\0\x05\0\0\0\x08\0\0\0', 'the answer')
        check_equal(process.poll(), None, 'its end')
        ours.close()
        ended(process)
        check_equal(os.listdir(WORK), [], 'what is left')


def notifies():
    """NOTIFY_SOCKET is told READY=1 when the sockets are open, by path or by abstract name"""
    abstract = f'rf-test-vsock-{os.getpid()}'
    for address, name in ((os.path.join(WORK, 'notify'),) * 2, ('\0' + abstract, '@' + abstract)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.bind(address)
            sock.settimeout(10)
            with running(*GOOD, env=dict(os.environ, NOTIFY_SOCKET=name)) as process:
                check_equal(sock.recv(100), b'READY=1', f'what {name} was told')
                process.terminate()
                ended(process)
    # What nobody receives does no harm.
    for name in (os.path.join(WORK, 'absent'), '', '@', 'x' * 200, 'vsock:2:1234'):
        with running(*GOOD, env=dict(os.environ, NOTIFY_SOCKET=name)) as process:
            process.terminate()
            ended(process)


def prints_counters():
    """SIGUSR1 prints one line of JSON, with counters and switches"""
    with running(*GOOD, '--tune', 'merge=off', '--tune', 'credit=eager') as process:
        with connect(UDS) as sock:
            sock.sendall(b'CONNECT 1\n')
            check_equal(sock.recv(1), b'', 'there is no guest')
        counters = counters_of(process)
        device, = counters['devices']
        check_equal((device['device'], device['guest_cid']), ('cid 4', 4), 'the device')
        check_equal(device['host']['refused_no_guest'], 1, 'refused')
        check_equal(device['switches'],
                    {'merge': False, 'credit': 'eager', 'packets': True, 'split': True,
                     'io': 'syscalls'}, 'switches')
        check_equal(sorted(device), ['connections', 'device', 'ended', 'guest_cid', 'host',
                                     'switches', 'vhost'], 'tables')
        # One line each, and nothing else.
        process.terminate()
        ended(process)


def idles():
    """it does not wake up while nothing happens"""
    with running(*GOOD) as process, connect(FRONT), connect(UDS):
        wait_for(lambda: counters_of(process)['devices'][0]['host']['front_ends'] == 1, 5,
                 'the front end')
        before = counters_of(process)['loop']['loop_wakeups']
        time.sleep(1)
        # The signal is one.
        check_equal(counters_of(process)['loop']['loop_wakeups'], before + 1, 'wake-ups')


def raises_descriptor_limit():
    """the soft limit of descriptors is raised, and a warning tells of a hard one"""
    def soft():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(
            resource.RLIMIT_NOFILE)[1]))

    def hard():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512))
    with running(*GOOD, preexec_fn=soft) as process:
        limit = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        check(limit[0] >= min(1280, limit[1]), f'the limit is {limit}')
        process.terminate()
        process.wait(10)
    with running(*GOOD, preexec_fn=hard) as process:
        check_equal(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), (512, 512), 'the limit')
        process.terminate()
        ended(process, 0, 'ringferry: only 512 descriptors are allowed (ulimit -n); 1024 '
              'connections need 1280\n')


def log_levels():
    """--log-level: a front end that leaves is worth a line of info only"""
    with running(*GOOD, '--log-level', 'info') as process:
        check('max-connections' in process.stderr.readline(), 'the line of the start')
        connect(FRONT).close()
        check_equal(process.stderr.readline(), 'ringferry: cid 4: the front end has left: the '
                    'other side closed the connection\n', 'the line')
    with running(*GOOD) as process:
        for front_ends in 1, 2:
            connect(FRONT).close()
            wait_for(lambda want=front_ends: counters_of(process)['devices'][0]['host']
                     ['front_ends'] == want, 5, 'the next front end')
        process.terminate()
        ended(process)


def read_lines(pipe):
    """All that comes from a pipe before it rests."""
    text = b''
    while select.select([pipe], [], [], 0.5 if text else 5)[0]:
        text += os.read(pipe, 65536)
    check(text.endswith(b'\n'), str(text))
    return text.splitlines()


def stuck_log_reader():
    """a reader of standard error that has stopped, or is gone, holds up nobody"""
    with running(*GOOD, '--log-level', 'debug') as process:
        fcntl.fcntl(process.stderr, fcntl.F_SETPIPE_SZ, 4096)
        for _ in range(20):
            process.send_signal(signal.SIGUSR1)
            connect(FRONT).close()
            with connect(UDS) as sock:
                sock.sendall(b'CONNECT 5')
                sock.shutdown(socket.SHUT_WR)
                check_equal(sock.recv(1), b'', 'the answer')
        # Once it reads again, it gets whole lines, of now.
        lines = read_lines(process.stderr.fileno())
        check(all(line.startswith((b'{', b'ringferry: ')) for line in lines), str(lines))
        process.send_signal(signal.SIGUSR1)
        lines = read_lines(process.stderr.fileno())
        check_equal(json.loads(lines[-1])['devices'][0]['guest_cid'], 4, 'the CID')
        process.stderr.close()
        process.send_signal(signal.SIGUSR1)
        connect(FRONT).close()
        process.terminate()
        check_equal(process.wait(10), 0, 'its end')


CASES = [bad_numbers, bad_words, missing, path_lengths, bad_descriptors, modes, ended_by_signals,
         removes_only_its_own, paths_in_use, listening_descriptor, connected_descriptor, notifies,
         prints_counters, idles, raises_descriptor_limit, log_levels, stuck_log_reader]

if __name__ == '__main__':
    STATUS = run_cases(CASES, after_failure=clean)
    shutil.rmtree(WORK)
    sys.exit(STATUS)
