#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ringferry bench, as a user of a shell sees it: what it refuses, what it writes, what it leaves.

Runs are as short as can be, and no figure is judged: that is for a machine that does nothing else.
RF_BIN is the program.
"""
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'guest'))
# pylint: disable=wrong-import-position
from tap import check, check_equal, run_cases, wait_for  # noqa: E402

BIN = os.environ.get('RF_BIN', 'build/ringferry')
WORK = tempfile.mkdtemp(prefix='rfb-')
SHORT = ('--seconds', '0.05', '--runs', '2', '--pin', 'free')
ROW = {'bench', 'via', 'dir', 'size', 'streams', 'variant', 'spread', 'cpu_s_per_gb', 'counters'}
LATENCY = {'p1_ns', 'mean_ns', 'p50_ns', 'p99_ns'}
COSTS = {'bytes_per_syscall', 'bounced_bytes', 'notifications_per_mib'}


def environment(**more):
    """That of the program: it makes its folder where it can be looked for."""
    return dict(os.environ, TMPDIR=WORK, **more)


def bench(*arguments, status=0, **more):
    """Run it to its end. Return: what it wrote on standard output and standard error."""
    done = subprocess.run([BIN, 'bench', *arguments], stdout=subprocess.PIPE, check=False,
                          stderr=subprocess.PIPE, text=True, timeout=100, env=environment(**more))
    check_equal(done.returncode, status, f'status of bench {arguments}: {done.stderr}')
    return done.stdout, done.stderr


def measured(*arguments):
    """Run it. Return: the rows of its file and what it printed."""
    path = os.path.join(WORK, 'rows.json')
    printed, _ = bench(*arguments, *SHORT, '--json', path)
    with open(path, encoding='utf-8') as file:
        found = json.load(file)
    os.unlink(path)
    check_equal(set(found), {'bench', 'host', 'rows'}, 'members of the file')
    check_equal(found['bench'], arguments[0], 'its part')
    check({'kernel', 'cpu', 'cores', 'granted_sndbuf', 'core_rtt_ns'} <= set(found['host']),
          f'host: {found["host"]}')
    nothing_is_left()
    return found['rows'], printed


def nothing_is_left():
    """No file, and no process."""
    check_equal(os.listdir(WORK), [], 'left in its folder')
    check_equal(processes_of(WORK), [], 'processes')


def processes_of(folder):
    """Processes that have a folder's name in their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        with contextlib.suppress(OSError):
            with open(f'/proc/{pid}/cmdline', 'rb') as file:
                if folder.encode() in file.read():
                    found.append(pid)
    return found


def keys(rows):
    """What tells rows apart."""
    return [(row['dir'], row['size'], row['variant']) for row in rows]


def streams_are_measured():
    """bench stream: both directions, sizes and variants; all members are there, with sense"""
    rows, printed = measured('stream', '--sizes', '512,64k', '--variant', 'raw', '--variant', 'x')
    check_equal(keys(rows), [(way, size, name) for way in ('g2h', 'h2g') for size in (512, 65536)
                             for name in ('raw', 'x')], 'rows')
    for row in rows:
        check_equal(set(row), ROW | {'gbps'}, 'members of a row')
        check_equal((row['bench'], row['via'], row['streams']), ('stream', 'unix', 1), 'row')
        spread = row['spread']
        check(0 < spread['min'] <= row['gbps'] <= spread['max'], f'rates: {row}')
        check_equal(spread['runs'], 2, 'rounds')
        check(row['cpu_s_per_gb'] > 0, f'CPU time: {row}')
        check_equal('to_raw' in spread, row['variant'] == 'x', 'ratio to raw')
        check_equal(COSTS <= set(row['counters']), row['variant'] == 'x', 'costs')
    ours = rows[1]['counters']
    check(ours['bytes_per_syscall'] > 0 and ours['guest']['tx_bytes'] > 0 and
          ours['host']['from_guest_bytes'] > 0, f'counters of g2h: {ours}')
    for text in ('guest to host, 512 B', 'host to guest, 65536 B', '/ raw', 'core to core'):
        check(text in printed, f'not printed: {text}')


def defaults_are_measured():
    """Without --variant: a plain socket, the best one, and the defaults"""
    rows, _ = measured('stream', '--sizes', '4k', '--dir', 'h2g')
    check_equal(keys(rows), [('h2g', 4096, name) for name in ('raw', 'raw-best', 'default')],
                'rows')


def many_streams_are_measured():
    """--streams and --rotate: several at once, many in turn, raw ones, too"""
    rows, printed = measured('stream', '--sizes', '4k', '--streams', '3', '--rotate', '5',
                             '--variant', 'raw', '--variant', 'x')
    check_equal(len(rows), 4, 'rows')
    for row in rows:
        check_equal((row['streams'], row['spread']['rotate']), (3, 5), 'row')
        check(0 <= row['spread']['slowest_to_fastest'] <= 1, f'fairness: {row}')
    check('ns per message' in printed, 'time per message is not printed')


def embedded_streams_are_measured():
    """--via embed: a thread of its own or the same one, both directions, each with its raw copies"""
    rows, _ = measured('stream', '--via', 'embed', '--sizes', '1k', '--streams', '2')
    check_equal(keys(rows), [(way, 1024, name) for way in ('g2h', 'h2g')
                             for name in ('raw', 'other', 'raw-best', 'same')], 'rows')
    for row in rows:
        check_equal(row['via'], 'embed', 'via')
        check(row['gbps'] > 0, f'rate: {row}')
        ours = row['variant'] in ('other', 'same')
        check_equal('to_raw' in row['spread'], ours, 'ratio to raw')
        name = 'from_guest_bytes' if row['dir'] == 'g2h' else 'to_guest_bytes'
        check_equal(row['counters']['host'].get(name, 0) > 0, ours, 'counters of the host half')
    for part in ('pingpong', 'limits'):
        _, errors = bench(part, '--via', 'embed', status=2)
        check('only with stream' in errors, errors)


def round_trips_are_measured():
    """bench pingpong: percentiles in order; ratios"""
    rows, printed = measured('pingpong', '--sizes', '512')
    check_equal(keys(rows), [('g2h', 512, 'raw'), ('g2h', 512, 'default')], 'rows')
    for row in rows:
        check_equal(set(row), ROW | LATENCY, 'members of a row')
        check(0 < row['p1_ns'] <= row['p50_ns'] <= row['p99_ns'], f'percentiles: {row}')
        check(row['p1_ns'] <= row['mean_ns'], f'mean: {row}')
    check('p50' in printed, 'no table')


def switches_reach_the_halves():
    """What a variant switches is seen in the counters of the half that has it"""
    rows, _ = measured('stream', '--sizes', '64', '--dir', 'g2h', '--variant', 'on:join=off',
                       '--variant', 'off:join=off,merge=off', '--variant', 'small:queue-size=16,window=64k')
    merged, single, small = (row['counters']['host'] for row in rows)
    check(merged['from_guest_sent_packets'] > 1.5 * merged['from_guest_sends'], f'on: {merged}')
    check(single['from_guest_sent_packets'] <= single['from_guest_sends'], f'off: {single}')
    check(small['from_guest_bytes'] > 0, f'small: {small}')


def a_wrong_byte_is_noticed():
    """A byte that is not the one that was sent ends it with one line"""
    for part in ('stream', 'pingpong'):
        for variant, *way in (('raw',), ('x',), ('x:thread=same', '--via', 'embed')):
            if way and part != 'stream':
                continue
            _, errors = bench(part, *way, '--sizes', '8k', '--variant', variant, *SHORT, status=1,
                              RINGFERRY_BENCH_WRONG_BYTE='1')
            check_equal(errors, f'ringferry bench: {variant.partition(":")[0]}: a byte is not '
                        'the one that was sent\n', 'standard error')
            nothing_is_left()


def another_back_end_is_measured():
    """--backend: somebody else's process is used, and is still there afterwards"""
    socket, uds = (os.path.join(WORK, name) for name in ('other.sock', 'other.uds'))
    with subprocess.Popen([BIN, 'vsock', '--socket', socket, '--uds-path', uds]) as other:
        try:
            wait_for(lambda: os.path.exists(uds), 10, 'its socket')
            path = os.path.join(WORK, 'rows.json')
            bench('stream', '--sizes', '4k', *SHORT, '--backend', f'other={socket},{uds}',
                  '--variant', 'ours', '--json', path)
            with open(path, encoding='utf-8') as file:
                rows = json.load(file)['rows']
            os.unlink(path)
            check_equal([row['variant'] for row in rows], ['other', 'ours'] * 2, 'variants')
            check(rows[0]['cpu_s_per_gb'] > 0, 'CPU time')
            check_equal(other.poll(), None, 'the other back end has ended')
        finally:
            other.terminate()
    nothing_is_left()
    _, errors = bench('pingpong', *SHORT, '--backend', f'gone={socket},{uds}', status=1)
    check_equal(errors.count('\n'), 1, f'lines of {errors}')
    check('gone: nobody listens' in errors, errors)


def limits_are_measured():
    """limits: copies and sockets of each size, the ceiling, and two kinds of round trips"""
    rows, _ = measured('limits', '--sizes', '64k')
    rates = [(row['variant'], row['size']) for row in rows if row.get('gbps', 0) > 0]
    names = ['memcpy-cache', 'memcpy-memory', 'copies-1-thread', 'copies-2-threads', 'raw',
             'raw-best']
    check_equal(rates, [(name, 65536) for name in names] + [('ceiling', 262144)], 'rates')
    times = [(row['variant'], row['size']) for row in rows if row.get('p50_ns', 0) > 0]
    check_equal(times, [(name, size) for size in (512, 4096) for name in ('eventfd', 'raw')],
                'round trips')


def connections_are_measured():
    """conns: what is held after each phase, and nothing is held in the end"""
    path = os.path.join(WORK, 'rows.json')
    printed, _ = bench('conns', '--idle-seconds', '0.05', '--json', path)
    with open(path, encoding='utf-8') as file:
        row, = json.load(file)['rows']
    os.unlink(path)
    for phase in ('one, closed', '1,000 open', 'closed again', '10,000 more in a row'):
        check(phase in printed, f'no "{phase}" in {printed}')
    check_equal((row['bench'], row['variant'], 'gbps' in row), ('conns', 'default', False), 'row')
    for name in ('back_end_fds_left', 'guest_fds_left'):
        check_equal(row['counters'][name], 0, name)
    check(row['counters']['connections_per_second'] > 0, 'connections per second')
    nothing_is_left()


def published_is_measured():
    """--preset: both columns are there, in tables and in the file, and --plot draws them"""
    path, plot = (os.path.join(WORK, name) for name in ('rows.json', 'plot.svg'))
    printed, _ = bench('--preset', 'published-b', '--sizes', '64', '--dir', 'g2h', *SHORT,
                       '--json', path, '--plot', plot)
    check('published: "vsock/virtio: optimizations to increase the throughput"' in printed, printed)
    with open(path, encoding='utf-8') as file:
        found = json.load(file)
    with open(plot, encoding='utf-8') as file:
        check(file.read().startswith('<svg '), 'no picture')
    for name in (path, plot):
        os.unlink(name)
    check_equal(found['bench'], 'published-b', 'its part')
    check_equal([(row['variant'], row['counters']['published']) for row in found['rows']],
                [('before', 0.088), ('p1', 0.1), ('p23', 0.101)], 'rows')
    nothing_is_left()


def wrong_arguments_are_refused():
    """One line that says what is allowed, status 2, and nothing runs"""
    cases = (
        ((), 'allowed: stream, pingpong, limits, conns, or --preset'),
        (('--preset', 'x'), 'published-a, published-b'),
        (('stream', '--preset', 'published-b'), 'no part'),
        (('strem',), 'allowed: stream, pingpong'),
        (('stream', 'pingpong'), 'one operand too many'),
        (('stream', '--sizes', '0'), '--sizes'),
        (('stream', '--sizes', '17m'), '--sizes'),
        (('stream', '--sizes', ''), '--sizes'),
        (('stream', '--via', 'carrier'), '--via'),
        (('stream', '--dir', 'up'), 'g2h, h2g or both'),
        (('stream', '--streams', '0'), '--streams'),
        (('stream', '--streams', '256', '--rotate', '16384'), '--rotate'),
        (('stream', '--seconds', 'nan'), '--seconds'),
        (('stream', '--seconds', '0'), '--seconds'),
        (('stream', '--runs', '102'), '--runs'),
        (('stream', '--queue-size', '100'), 'power of two'),
        (('stream', '--pin', '0:1'), 'split-host'),
        (('stream', '--variant', 'x:frobnicate=1'), 'no such key: frobnicate'),
        (('stream', '--variant', 'x:merge=some'), 'on|off'),
        (('stream', '--variant', 'x', '--variant', 'x'), 'not given before'),
        (('stream', '--backend', 'x=/only'), 'VHOST_USER_SOCKET'),
    )
    for arguments, wanted in cases:
        printed, errors = bench(*arguments, status=2)
        check_equal(printed, '', f'printed by {arguments}')
        check_equal(errors.count('\n'), 1, f'lines of {errors}')
        check(wanted in errors, f'{arguments}: {errors}')


def files_that_cannot_be_written_are_told():
    """--json into a folder that does not exist: one line, status 1, before anything runs"""
    begin = time.monotonic()
    _, errors = bench('stream', '--seconds', '60', '--json', os.path.join(WORK, 'no', 'x'),
                      status=1)
    check_equal(errors.count('\n'), 1, f'lines of {errors}')
    check(time.monotonic() - begin < 30, 'it ran before')


def an_interrupt_ends_all():
    """SIGINT and SIGTERM end it with status 130: no process and no file is left"""
    for sig in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen([BIN, 'bench', 'stream', '--seconds', '30', '--pin', 'free',
                               '--variant', 'x'], env=environment(),
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
            wait_for(lambda: len(processes_of(WORK)) > 0, 20, 'its back end')
            time.sleep(0.2)
            process.send_signal(sig)
            check_equal(process.stderr.read(), b'', 'standard error')
            check_equal(process.wait(20), 130, 'status')
        nothing_is_left()


if __name__ == '__main__':
    CASES = [streams_are_measured, defaults_are_measured, many_streams_are_measured,
             embedded_streams_are_measured, round_trips_are_measured, switches_reach_the_halves,
             a_wrong_byte_is_noticed, another_back_end_is_measured, limits_are_measured,
             connections_are_measured, published_is_measured, wrong_arguments_are_refused,
             files_that_cannot_be_written_are_told, an_interrupt_ends_all]
    try:
        sys.exit(run_cases(CASES))
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
