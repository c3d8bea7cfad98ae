#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ringferry guest on Linux's own back end: /dev/vhost-vsock inside a Linux guest under QEMU's
emulation, which is the host here. Programs with AF_VSOCK sockets are at the other ends.

RF_BIN is the program, RF_GUEST_PROGRAMS the directory of the guest's; RF_KERNEL=6.12 takes another
guest kernel.
"""
import json
import sys

from guestlab import Machine, Work, binary, programs, report
from streams import MIB
from tap import Failure, check, check_equal, comment, run_cases

CID = 50
HOST_CID = 2
DEVICE = '/dev/vhost-vsock'
ATTACH = f'ringferry guest --vhost-device {DEVICE} --guest-cid {CID}'
ECHO, SINK, SOURCE = 7, 8, 9
BULK = 8 * MIB


class Host:
    """The Linux that has the device, made when asked for, and anew after a failure."""

    def __init__(self):
        self.work = self.machine = None

    def get(self):
        """The machine, with the device and nobody on it."""
        if not self.machine:
            self.work = Work()
            work = self.work.__enter__()
            machine = Machine(work, None, programs=[*programs(), binary()])
            self.machine = machine.__enter__()
            machine.load_vhost()
        return self.machine

    def failed(self):
        """Print what there is to say, and start afresh next time."""
        if self.machine:
            report(Failure, self.machine.console)
        self.drop()

    def drop(self):
        """End what runs."""
        if self.machine:
            self.machine.__exit__(None)
            self.work.__exit__()
        self.work = self.machine = None


HOST = Host()


class Services:
    """ringferry guest with services in the machine; the next one waits for it to be gone."""

    def __init__(self, machine, *options):
        self.machine = machine
        words = ' '.join(options)
        machine.shell(f'rm -f /tmp/services.*; {ATTACH} --echo {ECHO} --sink {SINK}'
                      f' --source {SOURCE}:{BULK} --print-ready {words} >/tmp/services.out'
                      ' 2>>/tmp/services.err </dev/null & echo $! >/tmp/services.pid')
        machine.shell('for i in $(seq 200); do grep -q ready /tmp/services.out && exit;'
                      ' [ -e /proc/$(cat /tmp/services.pid) ] || break; usleep 50000; done;'
                      ' cat /tmp/services.err; exit 1')

    def __enter__(self):
        check_equal(self.lines()[0], f'ready {CID}', 'ready')
        return self

    def __exit__(self, kind, *_):
        status, output = self.machine.run('kill $(cat /tmp/services.pid); for i in $(seq 100); do'
                                          ' [ -e /proc/$(cat /tmp/services.pid) ] || exit 0;'
                                          ' usleep 50000; done; exit 1')
        if not kind:
            check_equal((status, output), (0, ''), 'end of the services')
            check_equal(self.machine.shell('cat /tmp/services.err'), '', 'its log')

    def lines(self):
        """What it has printed."""
        return self.machine.shell('cat /tmp/services.out').splitlines()

    def counters(self):
        """The line that SIGUSR1 prints; it is taken out of the log."""
        text = self.machine.shell('kill -USR1 $(cat /tmp/services.pid); for i in $(seq 100); do'
                                  ' grep -q "^{" /tmp/services.err && break; usleep 20000; done;'
                                  ' cat /tmp/services.err; : >/tmp/services.err')
        return json.loads(text)


def no_device(machine):
    """without the module, and in what is no such device, errors are told by name"""
    machine.shell('rmmod vhost_vsock')
    status, output = machine.run(f'{ATTACH} --echo 7')
    check_equal((status, output), (1, f'ringferry guest: {DEVICE}: the kernel has no such device:'
                                   ' modprobe vhost_vsock makes /dev/vhost-vsock\n'), 'no module')
    status, output = machine.run('mknod /tmp/node c 10 241; ringferry guest --vhost-device'
                                 f' /tmp/node --guest-cid {CID} --echo 7')
    check('the kernel has no such device' in output, output)
    machine.load_vhost()
    status, output = machine.run(f'ringferry guest --vhost-device /dev/null --guest-cid {CID}'
                                 ' --echo 7')
    check_equal((status, output),
                (1, 'ringferry guest: /dev/null: this is no vhost vsock device of virtio 1\n'),
                '/dev/null')


def host_connects(machine):
    """programs of the host connect: 500 kB come back, each byte as it was; of 60 at once, too"""
    with Services(machine) as services:
        machine.shell(f'vsockcmd connect {CID} {ECHO} send 100000 data 100000 send 200000'
                      ' data 200000 send 200000 data 200000 shut 1 eof', 60)
        machine.shell(f'vsockcalls call {CID} {ECHO} 60', 60)
        machine.shell(f'for i in $(seq 60); do vsockcmd connect {CID} {ECHO} send $((i * 997))'
                      ' data $((i * 997)) shut 1 eof & pids="$pids $!"; done;'
                      ' for pid in $pids; do wait $pid || exit; done', 60)
        counters = services.counters()
        check_equal(counters['rings_broken'], 0, 'rings broken')
        check_equal(counters['accepted'], 121, 'connections')


def bulk(machine):
    """8 MiB to a sink and from a source: the same SHA-256 at both ends"""
    with Services(machine) as services:
        machine.shell(f'dd if=/dev/urandom of=/tmp/data bs=1M count={BULK // MIB} 2>/dev/null')
        wanted = machine.shell('sha256sum </tmp/data').split()[0]
        machine.shell(f'socat -u /tmp/data VSOCK-CONNECT:{CID}:{SINK}', 60)
        digest = machine.shell(f'socat -u VSOCK-CONNECT:{CID}:{SOURCE} - | sha256sum', 60)
        machine.shell('for i in $(seq 100); do [ $(wc -l </tmp/services.out) = 3 ] && exit;'
                      ' usleep 50000; done; exit 1')
        sink, source = services.lines()[1:]
        check(sink.endswith(f'bytes={BULK} sha256={wanted}'), f'{sink}: not {wanted}')
        check(source.endswith(f'bytes={BULK} sha256={digest.split()[0]}'), f'{source}: {digest}')
        counters = services.counters()
        comment(', '.join(f'{name} {counters[name]}' for name in (
            'tx_packets', 'tx_kicks', 'tx_calls', 'rx_packets', 'rx_kicks', 'rx_calls')))


def guest_connects(machine):
    """connections to a program of the host: data both ways, half-closes, refused ports"""
    machine.start('accept', 'vsockcmd accept 5000 data 200000 eof send 300000 shut 1')
    # What vsockcmd sends and wants: byte n is n modulo 251.
    machine.shell('cd /tmp; for i in $(seq 0 250); do printf "\\\\$(printf %o $i)"; done >a;'
                  ' for i in $(seq 11); do cat a a >b; mv b a; done;'
                  ' head -c 200000 a >to; head -c 300000 a >from', 60)
    machine.shell(f'{ATTACH} connect {HOST_CID} 5000 </tmp/to >/tmp/back && cmp /tmp/back /tmp/from',
                  60)
    check_equal(machine.finish('accept', 60), (0, ''), 'the program of the host')
    status, output = machine.run(f'{ATTACH} connect {HOST_CID} 5001 </dev/null')
    check_equal((status, output), (1, 'ringferry guest: connection: refused: does the peer listen on'
                                   ' that port?\n'), 'a port where nobody listens')


def cid_taken(machine):
    """the CID of another guest is refused by name, and free as soon as that one is gone or killed"""
    with Services(machine):
        status, output = machine.run(f'{ATTACH} --echo 7')
        check_equal((status, output), (1, f'ringferry guest: {DEVICE}: another guest of this machine'
                                       ' has the CID of --guest-cid\n'), 'the second')
        machine.shell(f'ringferry guest --vhost-device {DEVICE} --guest-cid {CID + 1} connect'
                      f' {HOST_CID} 9 </dev/null; [ $? = 1 ]')
    with Services(machine):
        machine.start('caller', f'vsockcmd connect {CID} {ECHO} send 5 data 5 reset')
        machine.shell('usleep 500000; kill -9 $(cat /tmp/services.pid)')
        check_equal(machine.finish('caller'), (0, ''), 'who was connected')
        machine.shell('while [ -e /proc/$(cat /tmp/services.pid) ]; do usleep 20000; done;'
                      ' sleep 100 & echo $! >/tmp/services.pid')
    with Services(machine):
        machine.shell(f'vsockcmd connect {CID} {ECHO} send 5 data 5')


def idle(machine):
    """idle with a connection open: no thread runs"""
    with Services(machine) as services:
        machine.start('caller', f'vsockcmd connect {CID} {ECHO} send 5 data 5 sleep 60000')
        machine.shell('usleep 1000000')
        woken = services.counters()['loop_wakeups']
        # Of all threads; on 6.12 the kernel's worker is one of them.
        switches = ('usleep 200000; cd /proc/$(cat /tmp/services.pid)/task;'
                    ' grep -H ctxt_switches */status')
        before = machine.shell(switches)
        after = machine.shell(f'usleep 2000000; {switches}')
        check_equal(after, before, 'context switches')
        check_equal(services.counters()['loop_wakeups'], woken, 'wake-ups')
        machine.shell('killall vsockcmd')


CASES = (host_connects, bulk, guest_connects, cid_taken, idle, no_device)

if __name__ == '__main__':
    WANTED = [case for case in CASES if not sys.argv[1:] or case.__name__ in sys.argv[1:]]
    try:
        sys.exit(run_cases(WANTED, 180, arguments=lambda: (HOST.get(),), after_failure=HOST.failed))
    finally:
        HOST.drop()
