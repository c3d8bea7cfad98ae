#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ringferry vsock told what to serve in each of its forms, and several devices in one process.

RF_BIN is the program. What is refused, and in which words, is tested in tests/unit.
"""
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'guest'))
# pylint: disable=wrong-import-position
from streams import check_ended, receive_all, seeded  # noqa: E402
from tap import Failure, Skip, check, check_equal, run_cases, wait_for  # noqa: E402

BIN = os.environ.get('RF_BIN', 'build/ringferry')
WORK = tempfile.mkdtemp(prefix='rf-test-config-')
CONFIG = os.path.join(WORK, 'vms.yaml')
MIB = 1 << 20
GET_FEATURES = b'\x01\0\0\0\x01\0\0\0\0\0\0\0'
GARBAGE = b'no message..'


def path(name):
    """A file of this test."""
    return os.path.join(WORK, name)


def device(number, *more):
    """The argument of --vm for a device with sockets s<number> and u<number>."""
    return ','.join((f'guest-cid={number}', f'socket={path("s")}{number}',
                     f'uds-path={path("u")}{number}') + more)


def vms(*numbers):
    """--vm for each device."""
    return [word for number in numbers for word in ('--vm', device(number))]


def clean():
    """Remove what a case left."""
    for name in os.listdir(WORK):
        os.unlink(path(name))


def write_config(text):
    """--config with this file, in which @ stands for the directory."""
    with open(CONFIG, 'w', encoding='utf-8') as file:
        file.write(text.replace('@', WORK))
    return '--config', CONFIG


@contextlib.contextmanager
def program(*command, **options):
    """A program, killed in the end if it still runs."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def running(*arguments, **options):
    """ringferry vsock, ready."""
    with program(BIN, 'vsock', '--print-ready', *arguments, **options) as process:
        try:
            check_equal(process.stdout.readline(), 'ready\n', 'its first line')
            yield process
        finally:
            process.kill()
            clean()


@contextlib.contextmanager
def guest(number, *arguments):
    """ringferry guest on a device, ready."""
    with program(BIN, 'guest', '--socket', path(f's{number}'), '--print-ready',
                 *arguments) as process:
        check_equal(process.stdout.readline(), f'ready {number}\n', 'the guest')
        yield process


def once(*arguments, **options):
    """Run ringferry vsock to its end. Return: exit status, standard output, standard error."""
    done = subprocess.run((BIN, 'vsock') + arguments, stdin=subprocess.DEVNULL, text=True,
                          capture_output=True, timeout=10, check=False, **options)
    return done.returncode, done.stdout, done.stderr


def ended(process, status, errors=''):
    """The program ends by itself, with this status and on standard error this text."""
    process.wait(10)
    check_equal((process.returncode, process.stderr.read()), (status, errors), 'its end')


def stopped(process):
    """SIGTERM ends it with 0 and nothing was said."""
    process.terminate()
    ended(process, 0)


def connect(where):
    """A connection to a socket of the program."""
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(20)
    sock.connect(where)
    return sock


def ask(number, port):
    """Ask for a port of a guest. Return: the socket and the first line of the answer."""
    sock = connect(path(f'u{number}'))
    sock.sendall(b'CONNECT %d\n' % port)
    line = b''
    while not line.endswith(b'\n') and (byte := sock.recv(1)):
        line += byte
    return sock, line


def echo(number, data):
    """Port 7 of a guest sends back what it was sent."""
    sock, line = ask(number, 7)
    with sock:
        check_equal(line, b'OK 7\n', 'the answer')
        sender = threading.Thread(target=lambda: (sock.sendall(data),
                                                  sock.shutdown(socket.SHUT_WR)), daemon=True)
        sender.start()
        check(receive_all(sock) == data, f'{len(data)} bytes did not come back as they were')
        sender.join(10)


def counters_of(process):
    """The devices in the line that SIGUSR1 prints, by their CIDs."""
    process.send_signal(signal.SIGUSR1)
    line = process.stderr.readline()
    while not line.startswith('{'):
        line = process.stderr.readline()
    return {each['guest_cid']: each for each in json.loads(line)['devices']}


DROP_IN = '''vms:
    - guest_cid: 3
      socket: @/s3
      uds_path: @/u3
      tx_buffer_size: 65536
      queue_size: 1024
      groups: default
    - guest_cid: 4
      socket: @/s4
      uds_path: @/u4
      tx_buffer_size: 32768
      queue_size: 256
'''


def drop_in():
    """command lines and a file as for vhost-device-vsock serve the same devices"""
    rows = (
        ((f'--guest-cid=3 --socket={path("s3")} --uds-path={path("u3")} --tx-buffer-size=65536 '
          '--queue-size=1024 --groups=default').split(), [3]),
        ((f'--socket {path("s3")} --uds-path {path("u3")}').split(), [3]),
        ((f'--vm guest_cid=4,socket={path("s4")},uds_path={path("u4")},tx_buffer_size=65536,'
          'queue_size=1024,groups=default').split(), [4]),
        ((f'--vm socket={path("s3")},uds_path={path("u3")} --vm guest-cid=4,'
          f'uds-path={path("u4")},socket={path("s4")},tx-buffer-size=32768,queue-size=256'
          ).split(), [3, 4]),
        ([f'--config={CONFIG}'], [3, 4]),
    )
    for arguments, cids in rows:
        write_config(DROP_IN)
        with running(*arguments) as process:
            check_equal(sorted(counters_of(process)), cids, f'CIDs with {arguments}')
            for cid in cids:
                with guest(cid, '--echo', '7'):
                    echo(cid, b'as before')
            stopped(process)
    for flag in '-V', '--version':
        status, out, err = once(flag)
        check(status == 0 and re.fullmatch(r'ringferry [\d.]+\n', out) and not err, out + err)


def two_devices():
    """two devices of a file carry data at once, each guest with its own CID"""
    data = seeded(8 * MIB, 1), seeded(8 * MIB, 2)
    arguments = write_config('vms:\n- {guest_cid: 4, socket: @/s4, uds_path: @/u4}\n'
                             '- {guest-cid: 5, socket: @/s5, uds-path: @/u5}\n')
    with running(*arguments) as process, guest(4, '--echo', '7'), guest(5, '--echo', '7'):
        errors = []
        threads = [threading.Thread(target=guarded, args=(errors, echo, number, data[number - 4]))
                   for number in (4, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        check_equal(errors, [], 'errors')
        found = counters_of(process)
        for number in 4, 5:
            check_equal((found[number]['device'], found[number]['host']['from_guest_bytes']),
                        (f'cid {number}', 8 * MIB), 'the device')
        stopped(process)
        check_equal(os.listdir(WORK), ['vms.yaml'], 'what is left')


def guarded(errors, function, *arguments):
    """Call it, and keep what went wrong for another thread."""
    try:
        function(*arguments)
    except (Failure, OSError) as error:
        errors.append(f'{arguments[0]}: {error!r}')


def undisturbed():
    """a device whose front ends die, send garbage and reconnect costs another no byte"""
    stop = threading.Event()
    errors = []

    def disturb():
        while not stop.is_set():
            with connect(path('s5')) as sock:
                sock.sendall(GARBAGE)
            with guest(5, '--source', '9:100m') as other:
                flood = [ask(5, 9)[0] for _ in range(20)]
                other.kill()
                for sock in flood:
                    sock.close()
            for _ in range(50):
                connect(path('u5')).close()
    with running(*vms(4, 5), '--log-level', 'error') as process, guest(4, '--echo', '7'):
        thread = threading.Thread(target=guarded, args=(errors, disturb))
        thread.start()
        try:
            for seed in range(8):
                echo(4, seeded(8 * MIB, seed))
        finally:
            stop.set()
            thread.join(30)
        check_equal(errors, [], 'errors')
        counters = counters_of(process)
        check(counters[5]['host']['front_ends'] >= 2, 'it was not disturbed')
        check_equal((counters[4]['host']['front_ends'], counters[4]['host']['device_resets']),
                    (1, 0), 'what became of the other')


def check_only():
    """--check prints one line for each device and opens nothing, in each form"""
    write_config(DROP_IN + '      max_connections: 2\n')
    lines, sums = [], []
    for arguments, cids in ((('--config', CONFIG), [3, 4]), (vms(6, 7, 8), [6, 7, 8]),
                            (('--socket', path('s3'), '--uds-path', path('u3')), [3])):
        status, out, err = once('--check', *arguments)
        check_equal((status, err), (0, ''), f'the end with {arguments}')
        *devices, last = out.splitlines()
        if len(cids) == 1:
            devices.append(last)
        for cid, line in zip(cids, devices, strict=True):
            check(line.startswith(f'cid {cid}: socket {path("s")}{cid}, uds-path {path("u")}{cid}, '
                                  f'queue-size '), line)
            lines.append(line)
        if len(cids) > 1:
            sums.append(last)
        check_equal(os.listdir(WORK), ['vms.yaml'], 'what is there')
    each = [[int(number) for number in re.search(
        r'max-connections (\d+), which may pin (\d+) MiB of memory \((\d+) bytes of window and '
        r'(\d+) of socket buffers each\)', line).groups()] for line in lines]
    for connections, mib, window, sockets in each:
        check_equal(mib, -(-connections * (window + sockets) // MIB), 'memory')
    check_equal([row[0] for row in each[:3]], [1024, 2, 1024], 'connections')
    together = [-(-sum(row[0] * (row[2] + row[3]) for row in rows) // MIB)
                for rows in (each[:2], each[2:5])]
    check_equal(sums, [f'all {n} devices: may pin {mib} MiB of memory'
                       for n, mib in zip((2, 3), together)], 'sums')
    check_equal([row[2] for row in each[:3]], [65536, 32768, 1048576], 'windows')
    # The same as for a file that is no good.
    write_config(DROP_IN + '      guest-cid: 5\n')
    clean_but_config = once('--config', CONFIG)
    check_equal(clean_but_config, (2, '', f'ringferry vsock: {CONFIG}:13: guest-cid: given twice, '
                                   f'first in {CONFIG}:8; allowed: once per device\n'), 'its end')
    check_equal(once('--config', CONFIG, '--check'), clean_but_config, 'the end of --check')
    check_equal(os.listdir(WORK), ['vms.yaml'], 'what is there')
    clean()


def speak(number):
    """A front end that has said something and was answered."""
    sock = connect(path(f's{number}'))
    sock.sendall(GET_FEATURES)
    check_equal(len(sock.recv(20)), 20, 'length of the answer')
    return sock


def exit_on_disconnect():
    """--exit-on-disconnect: 0 after an orderly end, 1 after garbage; a probe is harmless"""
    for last_words, status in ((b'', 0), (GARBAGE, 1)):
        with running(*vms(4), '--exit-on-disconnect', '--log-level', 'error') as process:
            connect(path('s4')).close()
            with speak(4) as front:
                time.sleep(0.05)
                check_equal(process.poll(), None, 'its end')
                front.sendall(last_words)
                if last_words:
                    check_ended(front)
            ended(process, status)
            check_equal(os.listdir(WORK), [], 'what is left')
    with running(*vms(4)) as process:
        speak(4).close()
        speak(4).close()
        stopped(process)


def exit_with_the_last():
    """--exit-on-disconnect with several devices: each ends by itself, the program with the last"""
    for broken, status in ((None, 0), (4, 1), (5, 1)):
        with running(*vms(4, 5), '--exit-on-disconnect', '--log-level', 'error') as process:
            for number in 4, 5:
                with speak(number) as front:
                    if broken == number:
                        front.sendall(GARBAGE)
                        check_ended(front)
                if number == 4:
                    wait_for(lambda: sorted(os.listdir(WORK)) == ['s5', 'u5'], 5, 'its end')
                    check_equal(sorted(counters_of(process)), [5], 'devices')
            ended(process, status)
            check_equal(os.listdir(WORK), [], 'what is left')
    # A signal is an orderly end, whatever was before.
    with running(*vms(4, 5), '--exit-on-disconnect', '--log-level', 'error') as process:
        with connect(path('s4')) as front:
            front.sendall(GARBAGE)
            check_ended(front)
        stopped(process)


def connected_descriptor():
    """a connected --fd ends its device: 0 or 1; others go on"""
    for last_words, status in ((b'', 0), (GARBAGE, 1)):
        ours, theirs = socket.socketpair()
        with running('--log-level', 'error', '--uds-path', path('u'), '--fd',
                     str(theirs.fileno()), pass_fds=[theirs.fileno()]) as process:
            theirs.close()
            ours.sendall(last_words)
            if last_words:
                check_ended(ours)
            ours.close()
            ended(process, status)
    ours, theirs = socket.socketpair()
    number = theirs.fileno()
    with running('--vm', f'fd={number},uds-path={path("u3")}', *vms(4),
                 pass_fds=[number]) as process:
        theirs.close()
        ours.close()
        wait_for(lambda: sorted(os.listdir(WORK)) == ['s4', 'u4'], 5, 'the end of the device')
        with guest(4, '--echo', '7'):
            echo(4, b'still here')
        stopped(process)


def ok_port():
    """--ok-port: the guest's port, or the host's, each by device"""
    with running('--vm', device(4, 'ok-port=host'), '--vm', device(5, 'ok_port=guest'),
                 *vms(6)) as process:
        for number in 4, 5, 6:
            with guest(number, '--echo', '7'):
                sock, line = ask(number, 7)
                sock.close()
                if number == 4:
                    check(int(line.split()[1]) >= 1 << 30, line)
                else:
                    check_equal(line, b'OK 7\n', 'the answer')
        stopped(process)


def uds_owner():
    """--uds-owner: owner and group of the hybrid socket, and of that alone"""
    if os.getuid() != 0:
        raise Skip('needs root')
    for owner, wanted in (('12345:23456', (12345, 23456)), ('12345', (12345, os.getgid())),
                          ('root:root', (0, 0))):
        with running('--vm', device(4, f'uds-owner={owner}', 'uds-mode=0640')) as process:
            seen = os.lstat(path('u4'))
            check_equal((seen.st_uid, seen.st_gid), wanted, f'owner with {owner}')
            check_equal(stat.S_IMODE(seen.st_mode), 0o640, 'mode')
            check_equal(os.lstat(path('s4')).st_uid, 0, 'owner of the other')
            stopped(process)


def connect_line_timeout():
    """--timeouts connect-line: a silent program is closed in time, of this device only"""
    with running('--vm', device(4, 'timeouts=connect-line=100ms+shutdown=1s'), *vms(5)) as process:
        with connect(path('u4')) as short, connect(path('u5')) as long:
            begin = time.monotonic()
            check_equal(short.recv(1), b'', 'the end')
            took = time.monotonic() - begin
            check(0.09 <= took < 5, f'it took {took} s')
            long.settimeout(0.1)
            try:
                check_equal(long.recv(1), None, 'the other')
            except socket.timeout:
                pass
        stopped(process)


def handshake_timeout():
    """--timeouts handshake: how long a full backlog of a host program is tried again"""
    for value, reason in (('100ms', 'reset|refused'), ('20s', 'timed out')):
        with running('--vm', device(4, f'timeouts=handshake={value}')) as process, \
                socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path('u4_9'))
            listener.listen(0)
            with connect(path('u4_9')), program(BIN, 'guest', '--socket', path('s4'), 'connect',
                                                '2', '9') as other:
                # It gives up by itself after 2 seconds.
                other.wait(15)
                line = other.stderr.read()
                check(other.returncode == 1 and re.search(reason, line), f'{value}: {line}')
            stopped(process)


def max_connections():
    """--max-connections: the third is refused and counted, until one has ended"""
    with running('--vm', device(4, 'max-connections=2'), *vms(5), '--log-level',
                 'error') as process, guest(4, '--echo', '7'), guest(5, '--echo', '7'):
        held = [ask(4, 7)[0] for _ in range(2)]
        for refused in 1, 2:
            with connect(path('u4')) as third:
                check_ended(third)
            check_equal(counters_of(process)[4]['host']['refused_limit'], refused, 'refused')
        others = [ask(5, 7) for _ in range(3)]
        check_equal([line for _, line in others], 3 * [b'OK 7\n'], 'answers of the other')
        for sock in [sock for sock, _ in others] + held[:1]:
            sock.close()
        wait_for(lambda: counters_of(process)[4]['connections'] == 1, 5, 'the end of one')
        echo(4, b'room again')
        held[1].close()
        stopped(process)


def all_or_none():
    """one device that cannot be opened: one line, exit status 1, and no socket is left"""
    with open(path('s6'), 'wb'):
        pass
    status, out, err = once(*vms(4, 5, 6, 7))
    check_equal((status, out), (1, ''), 'its end')
    check(re.fullmatch(rf'ringferry: cid 6: cannot listen on {path("s6")}: .*\n', err), err)
    check_equal(os.listdir(WORK), ['s6'], 'what is left')
    clean()


def names_in_the_log():
    """log lines carry the name of the device, and tell the memory at the start"""
    with running(*vms(4, 5), '--log-level', 'info') as process:
        for number in 4, 5:
            line = process.stderr.readline()
            check(re.fullmatch(rf'ringferry: cid {number}: max-connections 1024, which may pin '
                               r'\d+ MiB of memory .*\n', line), line)
        for number in 5, 4:
            speak(number).close()
            check_equal(process.stderr.readline(), f'ringferry: cid {number}: the front end has '
                        'left: the other side closed the connection\n', 'the line')


def descriptor_limit():
    """the limit of descriptors is raised for the sum of all devices"""
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 2000))
    with running('--vm', device(4, 'max-connections=1000'), '--vm',
                 device(5, 'max-connections=500'), preexec_fn=limit) as process:
        check_equal(resource.prlimit(process.pid, resource.RLIMIT_NOFILE), (2000, 2000), 'limit')
        process.terminate()
        ended(process, 0, 'ringferry: only 2000 descriptors are allowed (ulimit -n); 1500 '
              'connections need 2012\n')


CASES = [drop_in, two_devices, undisturbed, check_only, exit_on_disconnect, exit_with_the_last,
         connected_descriptor, ok_port, uds_owner, connect_line_timeout,
         handshake_timeout, max_connections, all_or_none, names_in_the_log, descriptor_limit]

if __name__ == '__main__':
    STATUS = run_cases(CASES, after_failure=clean)
    shutil.rmtree(WORK)
    sys.exit(STATUS)
