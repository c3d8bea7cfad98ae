#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What an embedder gets: the installed headers, library and pkg-config file, used from outside.

RF_BUILD is the build directory, RF_CFLAGS what its sanitizers need.
"""
import contextlib
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import threading

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'guest'))
# pylint: disable=wrong-import-position
from tap import Failure, check, check_equal, run_cases  # noqa: E402

BUILD = os.environ.get('RF_BUILD', os.path.join(ROOT, 'build'))
WORK = tempfile.mkdtemp(prefix='rf-test-install-')
TREE = os.path.join(WORK, 'tree')
WARNINGS = ['-Wall', '-Wextra', '-Wpedantic', '-Wundef', '-Werror']


def run(*argv, **kwargs):
    """Run a program that must succeed; its standard output."""
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False, **kwargs)
    if done.returncode:
        raise Failure(f'{" ".join(argv)}: exit status {done.returncode}\n{done.stdout}')
    return done.stdout


@contextlib.contextmanager
def started(*argv, **kwargs):
    """A running program, killed in the end if it still runs."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **kwargs) as process:
        try:
            yield process
        finally:
            process.kill()


def pkg_config(*arguments):
    """Ask about ringferry as installed below TREE."""
    dirs = [path for path, _, names in os.walk(TREE) if 'ringferry.pc' in names]
    check_equal(len(dirs), 1, 'installed ringferry.pc files')
    env = dict(os.environ, PKG_CONFIG_PATH=dirs[0], PKG_CONFIG_SYSROOT_DIR=TREE)
    return shlex.split(run('pkg-config', *arguments, 'ringferry', env=env))


def library():
    """The installed library."""
    dirs = [flag[2:] for flag in pkg_config('--libs') if flag.startswith('-L')]
    check_equal(len(dirs), 1, 'library directories')
    return os.path.join(dirs[0], 'libringferry.so.0')


def headers():
    """The installed public headers."""
    found = []
    for flag in pkg_config('--cflags'):
        path = os.path.join(flag[2:], 'ringferry')
        if flag.startswith('-I') and os.path.isdir(path):
            found += [os.path.join(path, name) for name in sorted(os.listdir(path))]
    return found


def installs():
    """meson install puts the public headers, library and program below a prefix."""
    run('meson', 'install', '-C', BUILD, '--no-rebuild', '--destdir', TREE)
    public = sorted(os.listdir(os.path.join(ROOT, 'include', 'ringferry')))
    check_equal([os.path.basename(path) for path in headers()], public, 'installed headers')
    check(os.path.exists(library()), 'no library')
    with open(os.path.join(ROOT, 'meson.build'), encoding='utf-8') as file:
        version = re.search(r"version: '([^']*)'", file.read()).group(1)
    check_equal(pkg_config('--modversion'), [version], 'version in ringferry.pc')


def only_the_api_is_exported():
    """The library exports the functions that the public headers declare, and no other symbol."""
    declared = set()
    for header in headers():
        with open(header, encoding='utf-8') as file:
            declared |= set(re.findall(r'^RF_API\s[^;(]*?\b(rf_\w+)\(', file.read(), re.M))
    check(len(declared) >= 3, f'only {declared} found in the headers')
    exported = set()
    for line in run('nm', '-D', '--defined-only', library()).splitlines():
        _, kind, name = line.split()
        if kind == 'A':
            check_equal(name, 'RINGFERRY_0', 'version')
            continue
        check_equal((kind, name.partition('@')[2]), ('T', '@RINGFERRY_0'), f'kind of {name}')
        exported.add(name.partition('@')[0])
    check_equal(sorted(exported), sorted(declared), 'exported symbols')


def library_has_its_name():
    """The library's soname is libringferry.so.0."""
    dynamic = run('readelf', '-d', library())
    check('[libringferry.so.0]' in dynamic, dynamic)


def compiled(example):
    """An example compiled as a user would; how to run it."""
    program = os.path.join(WORK, example)
    run(os.environ.get('CC', 'cc'), *os.environ.get('RF_CFLAGS', '').split(), *WARNINGS, '-o',
        program, os.path.join(ROOT, 'examples', example + '.c'), *pkg_config('--cflags', '--libs'))
    return program, dict(os.environ, LD_LIBRARY_PATH=os.path.dirname(library()))


def host_client_runs():
    """examples/host-client.c compiles with pkg-config's flags and runs with the installed library."""
    program, env = compiled('host-client')
    uds = os.path.join(WORK, 'uds')
    requests = []

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(uds)
        listener.listen()

        def serve():
            conn, _ = listener.accept()
            with conn:
                requests.append(conn.recv(100))
                conn.sendall(b'OK 7\nfirst, ')
                requests.append(conn.makefile('rb').read())
                conn.sendall(b'then\n')
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        out = run(program, uds, '7', 'hello', env=env)
        thread.join(10)
    check_equal(requests, [b'CONNECT 7\n', b'hello'], 'what the back end got')
    check_equal(out, 'first, then\n', 'what the example printed')


def examples_meet():
    """examples/guest-echo.c and host-client.c, with the installed program between them."""
    guest_echo, env = compiled('guest-echo')
    host_client, _ = compiled('host-client')
    program = os.path.join(os.path.dirname(pkg_config('--variable=includedir')[0]), 'bin',
                           'ringferry')
    sock, uds = os.path.join(WORK, 'vm.sock'), os.path.join(WORK, 'vm.vsock')
    with started(program, 'vsock', '--guest-cid', '42', '--socket', sock, '--uds-path', uds,
                 '--print-ready') as back_end:
        check_equal(back_end.stdout.readline(), 'ready\n', 'the back end')
        with started(guest_echo, sock, '7', env=env) as guest:
            check_equal(guest.stdout.readline(), 'CID 42 listens on port 7\n', 'the guest')
            check_equal(run(host_client, uds, '7', 'hello', env=env), 'hello', 'the answer')
            guest.wait(10)
            check(guest.stdout.read().startswith('connection from 2:'), 'no connection')
            check_equal(guest.returncode, 0, "the guest's exit status")
        back_end.terminate()
        back_end.wait(10)
        check_equal(back_end.returncode, 0, "the back end's exit status")


def embedded_host_serves():
    """examples/host-two.c serves the two halves of the other examples, for two guests at once."""
    host_two, env = compiled('host-two')
    guest_echo, _ = compiled('guest-echo')
    host_client, _ = compiled('host-client')
    place = os.path.join(WORK, 'two')
    os.mkdir(place)
    with started(host_two, place, env=env) as host:
        check_equal(host.stdout.readline(), 'ready\n', 'the host')
        for cid in (3, 4):
            name = os.path.join(place, f'vm{cid}')
            with started(guest_echo, name + '.sock', '7', env=env) as guest:
                check_equal(guest.stdout.readline(), f'CID {cid} listens on port 7\n', 'the guest')
                check_equal(run(host_client, name + '.vsock', '7', 'x', env=env), 'x', 'the answer')
                guest.wait(10)
                check_equal(guest.returncode, 0, "the guest's exit status")
            check_equal(host.stdout.readline(), f'vm{cid} has left\n', 'the callback')
        host.terminate()
        host.wait(10)
        check_equal(host.returncode, 0, "the host's exit status")
        devices = json.loads(host.stdout.read())['devices']
    check_equal([device['host']['from_guest_bytes'] for device in devices], [1, 1], 'counters')
    check_equal(os.listdir(place), [], 'files that are left')


def program_is_the_host():
    """examples/host-echo.c is what a guest talks to, without a socket for host programs."""
    host_echo, env = compiled('host-echo')
    program = os.path.join(os.path.dirname(pkg_config('--variable=includedir')[0]), 'bin',
                           'ringferry')
    sock = os.path.join(WORK, 'echo.sock')
    text = 'there and back\n' * 100000
    with started(host_echo, sock, '5', env=env) as host:
        check_equal(host.stdout.readline(), 'ready\n', 'the host')
        done = subprocess.run([program, 'guest', '--socket', sock, 'connect', '2', '7'],
                              input=text, check=True, text=True, stdout=subprocess.PIPE)
        check(done.stdout == text, 'the echo is another text')
        check(host.stdout.readline().startswith('connection from port '), 'accept()')
        check_equal(host.stdout.readline(), 'connection ended: closed\n', 'ended()')
        host.terminate()
        host.wait(10)
        check_equal(host.returncode, 0, "the host's exit status")
    check(not os.path.exists(sock), 'the socket is left')


def one_thread_is_both():
    """examples/same-thread.c moves every byte both ways, and the guest never has to kick."""
    same_thread, env = compiled('same-thread')
    counters, result = run(same_thread, '8', env=env).splitlines()
    check_equal(result, f'{8 << 20} bytes each way, all right', 'the result')
    counters = json.loads(counters)
    check(counters['tx_bytes'] == counters['rx_bytes'] == 8 << 20, f'bytes: {counters}')
    # Before the connection, and in the end, there may be some.
    check(counters['tx_kicks'] < 10, f'kicks: {counters}')


if __name__ == '__main__':
    try:
        STATUS = run_cases([
            installs, only_the_api_is_exported, library_has_its_name, host_client_runs,
            examples_meet, embedded_host_serves, program_is_the_host, one_thread_is_both,
        ])
    finally:
        shutil.rmtree(WORK)
    sys.exit(STATUS)
