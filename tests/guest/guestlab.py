# SPDX-License-Identifier: BSD-3-Clause
"""A Linux guest under QEMU's emulation and the back end that serves it, both driven from here.

Back ends and machines are context managers; everything they started ends with them, and with this
process however it ends. Guest commands go over a virtio serial port (see init.sh).
"""
import base64
import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import guestimage
from tap import Failure, Skip, check, check_equal, comment, wait_for

HOST_CID = 2
GUEST_CID = 42
BOOT_SECONDS = 120
PR_SET_PDEATHSIG = 1

# No VGA, network card, disk controller or option ROM: each costs boot time in the firmware.
MACHINE = 'q35,sata=off,smbus=off,usb=off,vmport=off,i8042=off,hpet=off'
APPEND = ('console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check mitigations=off '
          'cryptomgr.notests random.trust_cpu=on rdinit=/init')


def binary():
    """The program under test."""
    root = os.path.dirname(os.path.dirname(guestimage.HERE))
    return os.environ.get('RF_BIN') or os.path.join(root, 'build', 'ringferry')


def programs():
    """The programs of the guest that the build made (meson.build)."""
    root = os.path.dirname(os.path.dirname(guestimage.HERE))
    build = os.environ.get('RF_GUEST_PROGRAMS') or os.path.join(root, 'build', 'tests', 'guest')
    paths = [os.path.join(build, name) for name in ('vsockcalls', 'vsockcmd', 'vsockload')]
    for path in paths:
        check(os.access(path, os.X_OK), f'{path} is not there; build it, or set RF_GUEST_PROGRAMS')
    return paths


def kernel_version():
    """The guest's kernel, as guestimage knows it."""
    return os.environ.get('RF_KERNEL') or '6.1'


def die_with_parent():
    """In a child: be killed when the test program is gone, whatever ended it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(argv, log, **kwargs):
    """Start a program whose standard error goes to a file; Ctrl-C at the terminal is not for it."""
    kwargs.setdefault('stdin', subprocess.DEVNULL)
    with open(log, 'ab') as err:
        return subprocess.Popen(argv, stderr=err, start_new_session=True,
                                preexec_fn=die_with_parent, **kwargs)


def end_process(process, seconds=5):
    """Ask a program of ours to end, then make it. Return: its exit status."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def read_text(path):
    """What a file holds so far; nothing if it is not there."""
    try:
        with open(path, encoding='utf-8', errors='replace') as file:
            return file.read()
    except FileNotFoundError:
        return ''


def tail(path, lines=15):
    """The last lines of a file."""
    return '\n'.join(read_text(path).splitlines()[-lines:])


def report(kind, *logs):
    """After an exception of this kind, if any: print what programs had to say about it."""
    if kind and not issubclass(kind, Skip):
        for log in logs:
            comment(f'{os.path.basename(log)}:\n{tail(log, 6)}')


class BackEnd:
    """ringferry vsock, and the host programs' side of its sockets."""

    def __init__(self, work, *options, cid=GUEST_CID):
        self.socket = os.path.join(work, 'vhost.sock')
        self.uds = os.path.join(work, 'vsock')
        self.log = os.path.join(work, 'ringferry.log')
        self.argv = [binary(), 'vsock', '--guest-cid', str(cid), '--socket', self.socket,
                     '--uds-path', self.uds, *options]
        self.process = None

    def __enter__(self):
        check(os.access(self.argv[0], os.X_OK),
              f'{self.argv[0]} is not there; build it, or set RF_BIN')
        self.process = spawn([*self.argv, '--print-ready'], self.log, stdout=subprocess.PIPE)
        # Its sockets may be there from an earlier run, so they tell nothing.
        check(select.select([self.process.stdout], [], [], 10)[0], 'the back end is not ready')
        check_equal(self.process.stdout.readline(), b'ready\n', f'back end: {tail(self.log)}')
        return self

    def __exit__(self, kind, *_):
        end_process(self.process)
        self.process.stdout.close()
        report(kind, self.log)

    def alive(self):
        """Does it run?"""
        return self.process.poll() is None

    def counters(self):
        """The counters that SIGUSR1 prints as one JSON line, all layers' in one dictionary."""
        def lines():
            return [line for line in read_text(self.log).split('\n')[:-1] if line.startswith('{')]
        before = len(lines())
        self.process.send_signal(signal.SIGUSR1)
        wait_for(lambda: len(lines()) > before, 5, 'counters')
        return flatten(json.loads(lines()[-1]))

    def check_all_ended(self, seconds=5):
        """No connection may be left soon after the last one was closed."""
        end = time.monotonic() + seconds
        while (left := self.counters()['connections']) and time.monotonic() < end:
            time.sleep(0.5)
        check_equal(left, 0, 'connections left in the back end')

    def kill(self):
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(10)

    def descriptors(self):
        """How many descriptors it has open."""
        return len(os.listdir(f'/proc/{self.process.pid}/fd'))

    def resident_kib(self):
        """Its memory in use, without the guest's."""
        for line in read_text(f'/proc/{self.process.pid}/status').splitlines():
            if line.startswith('RssAnon'):
                return int(line.split()[1])
        raise Failure('the back end has ended')

    def switches(self):
        """How often its threads gave up the processor to wait, as the kernel counts it."""
        total = 0
        tasks = f'/proc/{self.process.pid}/task'
        for task in os.listdir(tasks):
            for line in read_text(f'{tasks}/{task}/status').splitlines():
                if line.startswith('voluntary_ctxt_switches'):
                    total += int(line.split()[1])
        return total

    def dial(self, seconds=30):
        """Connect to the hybrid socket, nothing sent yet."""
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(seconds)
        sock.connect(self.uds)
        return sock

    def connect(self, port, seconds=10):
        """Connect to a guest's port, trying again while nobody listens there."""
        end = time.monotonic() + seconds
        while True:
            sock = self.dial()
            sock.sendall(b'CONNECT %d\n' % port)
            line = read_line(sock)
            if line.startswith(b'OK '):
                return sock
            sock.close()
            if time.monotonic() > end:
                raise Failure(f'guest port {port}: {line!r} instead of OK')
            time.sleep(0.1)

    def listen(self, port, backlog=16):
        """Listen for the guest's connections to a host port."""
        path = f'{self.uds}_{port}'
        if os.path.exists(path):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(30)
        sock.bind(path)
        sock.listen(backlog)
        return sock


def flatten(value, into=None):
    """All numbers of nested objects and lists by their own name, equal names summed up."""
    into = {} if into is None else into
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, (dict, list)):
            flatten(item, into)
        elif isinstance(item, int):
            into[key] = into.get(key, 0) + item
    return into


def read_line(sock):
    """Read up to a newline, and not a byte more; what there was if the peer closed."""
    line = b''
    while not line.endswith(b'\n'):
        try:
            byte = sock.recv(1)
        except ConnectionResetError:
            byte = b''
        if not byte:
            break
        line += byte
    return line


class Machine:
    """QEMU with a Linux guest whose vsock device is served at a vhost-user socket; None for none.

    @memory is the kind of its @megabytes, @dimms the number of further pieces that plug_dimm() may
    add.
    """

    # pylint: disable=too-many-arguments
    def __init__(self, work, vhost_socket, megabytes=512, memory='memfd,share=on', programs=(),
                 dimms=0, processors=1):
        self.work = work
        self.vhost_socket = vhost_socket
        self.megabytes = megabytes
        self.memory = memory
        self.programs = programs
        self.dimms = dimms
        self.processors = processors
        self.log = os.path.join(work, 'qemu.log')
        self.console = os.path.join(work, 'console.log')
        self.process = self.qmp = self.agent = None
        self.requests = 0

    def _argv(self):
        kernel = guestimage.fetch_kernel(kernel_version())
        initrd = os.path.join(self.work, 'initrd')
        guestimage.write_initramfs(initrd, kernel, self.programs)
        machine = MACHINE
        memory = []
        if self.memory != 'plain':
            machine += ',memory-backend=mem'
            memory = ['-object', f'memory-backend-{self.memory},id=mem,size={self.megabytes}M']
        if self.memory.startswith('file'):
            memory[1] += f',mem-path={os.path.join(self.work, "ram")}'
        dimms = f',slots={self.dimms},maxmem=8G' if self.dimms else ''
        vsock = []
        if self.vhost_socket:
            vsock = ['-chardev', f'socket,id=vsock,path={self.vhost_socket}',
                     '-device', 'vhost-user-vsock-pci,chardev=vsock']
        return [guestimage.find_tool('qemu-system-x86_64'), '-machine', machine,
                '-accel', 'tcg,thread=multi', '-cpu', 'qemu64', '-smp', str(self.processors),
                '-m', f'size={self.megabytes}M' + dimms, *memory,
                '-nodefaults', '-no-user-config', '-display', 'none',
                '-serial', f'file:{self.console}',
                '-chardev', f'socket,id=agent,path={self.work}/agent,server=on,wait=off',
                '-device', 'virtio-serial-pci', '-device', 'virtserialport,chardev=agent',
                '-qmp', f'unix:{self.work}/qmp,server=on,wait=off',
                '-kernel', os.path.join(kernel, 'vmlinuz'), '-initrd', initrd, '-append', APPEND,
                *vsock]

    def __enter__(self):
        for name in ('agent', 'qmp'):
            if os.path.exists(os.path.join(self.work, name)):
                os.unlink(os.path.join(self.work, name))
        self.process = spawn(self._argv(), self.log)
        try:
            self.agent = self._dial('agent')
            self.qmp = self._dial('qmp').makefile('rwb')
            self.qmp.readline()
            self.command('qmp_capabilities')
            self.wait_ready()
        except BaseException:
            self.__exit__(None)
            raise
        return self

    def __exit__(self, kind, *_):
        if self.qmp:
            self.qmp.close()
        if self.agent:
            self.agent.close()
        end_process(self.process)
        report(kind, self.log, self.console)

    def _dial(self, name):
        path = os.path.join(self.work, name)

        def attempt():
            check(self.process.poll() is None, f'QEMU ended: {tail(self.log)}')
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(path)
                return sock
            except OSError:
                sock.close()
                return None
        sock = wait_for(attempt, 20, f'QEMU socket {name}')
        sock.settimeout(BOOT_SECONDS)
        return sock

    def command(self, execute, **arguments):
        """Run a QMP command; what it returns."""
        request = {'execute': execute, 'arguments': arguments}
        self.qmp.write(json.dumps(request).encode() + b'\n')
        self.qmp.flush()
        while True:
            line = self.qmp.readline()
            check(line, f'QEMU ended: {tail(self.log)}')
            answer = json.loads(line)
            check('error' not in answer, f'QMP {execute}: {answer}')
            if 'return' in answer:
                return answer['return']

    def plug_dimm(self, name, megabytes):
        """Give the guest another piece of shared memory."""
        self.command('object-add', **{'qom-type': 'memory-backend-memfd', 'id': f'mem-{name}',
                                      'size': megabytes << 20, 'share': True})
        self.command('device_add', driver='pc-dimm', id=name, memdev=f'mem-{name}')

    def quit(self):
        """End QEMU as its user would."""
        self.command('quit')
        self.process.wait(20)

    def wait_ready(self):
        """Wait until the guest has booted."""
        self.agent.settimeout(BOOT_SECONDS)
        try:
            while not read_line(self.agent).startswith(b'ready'):
                check(self.process.poll() is None, f'QEMU ended: {tail(self.log)}')
        except socket.timeout:
            raise Failure(f'guest does not boot: {tail(self.console)}') from None

    def run(self, script, seconds=20):
        """Run a shell script in the guest. Return: its exit status and output."""
        self.requests += 1
        encoded = base64.b64encode(script.encode()).decode()
        self.agent.settimeout(seconds + 10)
        try:
            self.agent.sendall(f'{self.requests} {seconds} {encoded}\n'.encode())
            answer = read_line(self.agent).split()
            check(len(answer) == 3 and int(answer[0]) == self.requests, f'guest answers {answer}')
            left = int(answer[2])
            output = b''
            while left > len(output):
                output += self.agent.recv(left - len(output))
        except socket.timeout:
            raise Failure(f'guest is silent: {tail(self.console)}') from None
        return int(answer[1]), output.decode(errors='replace')

    def shell(self, script, seconds=20):
        """Run a shell script in the guest that must succeed; its output."""
        status, output = self.run(script, seconds)
        check(status == 0, f'guest: status {status} from: {script}\n{output}')
        return output

    def load_vhost(self):
        """Have the guest be a host, too: /dev/vhost-vsock."""
        self.shell('for module in /modules/host/*.ko; do insmod $module; done')

    def start(self, name, script):
        """Start a shell script in the guest; finish() waits for it."""
        encoded = base64.b64encode(script.encode()).decode()
        self.shell(f'rm -f /tmp/{name}.*; echo {encoded} | base64 -d >/tmp/{name}.sh\n'
                   f'(sh /tmp/{name}.sh >/tmp/{name}.out 2>&1; echo $? >/tmp/{name}.new;'
                   f' mv /tmp/{name}.new /tmp/{name}.status) </dev/null >/dev/null 2>&1 &')

    def finish(self, name, seconds=20):
        """Wait for a started script. Return: its exit status and output."""
        output = self.shell(f'while [ ! -e /tmp/{name}.status ]; do usleep 50000; done\n'
                            f'cat /tmp/{name}.status /tmp/{name}.out', seconds)
        status, _, rest = output.partition('\n')
        return int(status), rest


class Work:
    """A directory for sockets and logs, removed in the end. Its path is short: sockets must fit."""

    def __init__(self):
        self.path = None

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix='rfg-')
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


@contextlib.contextmanager
def own_machine(**options):
    """A guest and a back end for one case."""
    with Work() as work, BackEnd(work) as back_end:
        with Machine(work, back_end.socket, **options) as guest:
            yield guest, back_end


class Lab:
    """One back end and one guest for many cases; made when asked for, and anew after a failure."""

    def __init__(self, **machine):
        self.machine = machine
        self.stack = None
        self.back_end = self.guest = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.drop()

    def get(self):
        """The guest and its back end."""
        if not self.stack:
            with contextlib.ExitStack() as stack:
                work = stack.enter_context(Work())
                self.back_end = BackEnd(work)
                self.guest = Machine(work, self.back_end.socket, programs=programs(),
                                     **self.machine)
                stack.enter_context(self.back_end)
                stack.enter_context(self.guest)
                self.stack = stack.pop_all()
        return self.guest, self.back_end

    def failed(self):
        """Print what the programs said, and start afresh next time."""
        if self.stack:
            report(Failure, self.back_end.log, self.guest.log, self.guest.console)
        self.drop()

    def drop(self):
        """End what runs."""
        if self.stack:
            self.stack.close()
            self.stack = None
