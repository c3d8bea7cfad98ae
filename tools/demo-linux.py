#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Carry a file host -> guest -> host with a Linux guest under QEMU; let the guest call the host."""
import argparse
import contextlib
import hashlib
import os
import random
import re
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'guest'))

# pylint: disable=wrong-import-position
from guestlab import BackEnd, Machine, Work, binary, spawn, tail  # noqa: E402
from tap import Failure, Skip, check, wait_for  # noqa: E402

MIB = 1 << 20
# The guest keeps the file in its memory.
MAX_BYTES = 2 << 30
OTHER_MEGABYTES = 256
HOST_SAYS = 'Hello guest, this is the host.\n'
GUEST_SAYS = 'Hello host, this is the guest.\n'


def size_bytes(text):
    """A number of bytes with optional k, m, g."""
    match = re.fullmatch(r'([0-9]{1,12})([kmg]?)', text)
    if not match:
        raise argparse.ArgumentTypeError(
            f'"{text}" is not allowed; a number with or without k, m, g is')
    return int(match[1]) << {'': 0, 'k': 10, 'm': 20, 'g': 30}[match[2]]


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message):
        self.exit(2, f'demo: {message}\n')


def parse_arguments():
    """The file to carry, or the size of one to make."""
    parser = Parser(prog='./dev demo --linux', allow_abbrev=False)
    given = parser.add_mutually_exclusive_group()
    given.add_argument('--file', help='file to carry')
    given.add_argument('--size', type=size_bytes, default=64 * MIB, metavar='BYTES[k|m|g]',
                       help='bytes to make and carry (default: 64m)')
    options = parser.parse_args()
    if options.file:
        if not os.path.isfile(options.file) or not os.access(options.file, os.R_OK):
            parser.error(f'--file: "{options.file}" is no readable file')
        options.size = os.path.getsize(options.file)
    if options.size > MAX_BYTES:
        parser.error(f'at most {MAX_BYTES >> 30} GiB: the guest keeps the file in its memory')
    return options


def make_file(path, size):
    """Seeded random bytes."""
    source = random.Random(1)
    with open(path, 'wb') as file:
        for at in range(0, size, MIB):
            file.write(source.randbytes(min(MIB, size - at)))


def sha256(path):
    """The SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, 'rb') as file:
        while (part := file.read(MIB)):
            digest.update(part)
    return digest.hexdigest()


class Demo:
    """The parts of the demo, on one guest."""

    def __init__(self, work, guest, uds, source, size):
        self.work = work
        self.guest = guest
        self.uds = uds
        self.source = source
        self.size = size
        self.wanted = sha256(source)

    def _start(self, verb, port, **files):
        options = ['--wait', '10'] if verb == 'connect' else []
        argv = [binary(), verb, *options, self.uds, str(port)]
        return spawn(argv, os.path.join(self.work, verb + '.log'), **files)

    def _carry(self, label, port, received, **files):
        """Run ringferry connect with progress; received() tells how much has arrived."""
        begin = time.monotonic()
        with self._start('connect', port, **files) as process:
            while process.poll() is None:
                if sys.stdout.isatty():
                    print(f'\r  {label}  {received() // MIB} of {self.size // MIB} MiB ', end='',
                          flush=True)
                time.sleep(0.1)
        check(process.returncode == 0, f'{label}: {tail(os.path.join(self.work, "connect.log"))}')
        status, output = self.guest.finish('cmd', 60)
        check(status == 0, f'{label}: in the guest: {output}')
        seconds = time.monotonic() - begin
        print('\r' if sys.stdout.isatty() else '', end='')
        print(f'  {label}  {self.size} bytes in {seconds:.2f} s:'
              f' {self.size / MIB / seconds:.0f} MiB/s')

    def _check_sum(self, what, digest):
        check(digest == self.wanted, f'{what} has another SHA-256: {digest}')
        print(f'  {what}: SHA-256 is the same, {digest[:16]}...')

    def host_to_guest(self):
        """The file goes into the guest."""
        print('Host to guest: socat -u VSOCK-LISTEN:1000 CREATE:file,'
              f' and ringferry connect {self.uds} 1000')
        self.guest.start('cmd', 'socat -u VSOCK-LISTEN:1000 CREATE:/tmp/file')
        with open(self.source, 'rb') as file:
            self._carry('host -> guest', 1000, file.tell, stdin=file)
        digest = self.guest.shell('sha256sum </tmp/file', 600).split()[0]
        self._check_sum("the guest's file", digest)

    def guest_to_host(self):
        """The file comes back."""
        print('Guest to host: socat -u file VSOCK-LISTEN:1001,'
              f' and ringferry connect {self.uds} 1001')
        back = os.path.join(self.work, 'back')
        self.guest.start('cmd', 'socat -u /tmp/file VSOCK-LISTEN:1001')
        with open(back, 'wb') as file:
            self._carry('guest -> host', 1001, lambda: os.path.getsize(back), stdout=file)
        self._check_sum('the file that came back', sha256(back))

    def guest_calls(self):
        """The guest connects to a host program."""
        print(f'The guest calls: ringferry listen {self.uds} 5000,'
              ' and socat - VSOCK-CONNECT:2:5000')
        with self._start('listen', 5000, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as listener:
            wait_for(lambda: os.path.exists(self.uds + '_5000') or listener.poll() is not None, 10,
                     'ringferry listen')
            self.guest.start('cmd', f"printf '{GUEST_SAYS}' | socat -t10 - VSOCK-CONNECT:2:5000")
            host_hears = listener.communicate(HOST_SAYS.encode(), 30)[0].decode()
        guest_hears = self.guest.finish('cmd')[1]
        check(host_hears == GUEST_SAYS, f'the host heard {host_hears!r}')
        check(guest_hears == HOST_SAYS, f'the guest heard {guest_hears!r}')
        print(f'  the host heard:  {host_hears}  the guest heard: {guest_hears}', end='')


def show(options):
    """The whole demo."""
    check(os.access(binary(), os.X_OK), f'{binary()} is not there; ./dev demo builds it')
    with contextlib.ExitStack() as stack:
        work = stack.enter_context(Work())
        source = options.file or os.path.join(work, 'data')
        if not options.file:
            print(f'Making {options.size // MIB} MiB of data ...')
            make_file(source, options.size)
        back_end = BackEnd(work)
        print('Starting a back end for the guest with CID 42:')
        print(f'  ringferry {" ".join(back_end.argv[1:])}')
        stack.enter_context(back_end)
        begin = time.monotonic()
        print("Starting a Linux guest (Debian's kernel, fetched at first use) ...")
        megabytes = OTHER_MEGABYTES + options.size * 5 // 4 // MIB
        guest = stack.enter_context(Machine(work, back_end.socket, megabytes=megabytes))
        print(f'  up in {time.monotonic() - begin:.1f} s: Linux {guest.shell("uname -r").strip()}')
        demo = Demo(work, guest, back_end.uds, source, options.size)
        demo.host_to_guest()
        demo.guest_to_host()
        demo.guest_calls()
    print('\nWith a VM of yours: build/ringferry vsock --guest-cid 4 --socket /tmp/vm4.sock'
          ' --uds-path /tmp/vm4.vsock, and then qemu with\n'
          '-object memory-backend-memfd,id=mem,size=512M,share=on -machine memory-backend=mem'
          ' -m 512 -chardev socket,id=c0,path=/tmp/vm4.sock'
          ' -device vhost-user-vsock-pci,chardev=c0')


def main():
    """Run it; everything that was started ends with it, Ctrl-C included."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.stdout.reconfigure(line_buffering=True)
    options = parse_arguments()
    try:
        show(options)
    except KeyboardInterrupt:
        return 130
    except (Failure, Skip, OSError, subprocess.TimeoutExpired) as failure:
        print(f'demo: FAILED: {failure}', file=sys.stderr)
        return 1
    return 0


if __name__ == '__main__':
    sys.exit(main())
