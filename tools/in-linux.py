#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Run a command in a Linux under QEMU's emulation that has ringferry and /dev/vhost-vsock.

There the kernel's own back end can be measured beside others without touching the AF_VSOCK of this
machine:

    tools/in-linux.py -- 'ringferry bench stream --backend kernel'
"""
import argparse
import os
import shutil
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'guest'))

# pylint: disable=wrong-import-position
from guestimage import METAPACKAGE  # noqa: E402
from guestlab import Machine, Work, binary  # noqa: E402
from tap import Failure, Skip, check  # noqa: E402


def parse_arguments():
    """What to run, and in what."""
    parser = argparse.ArgumentParser(
        prog='tools/in-linux.py', allow_abbrev=False,
        description="Run a command in a Linux under QEMU's emulation that has ringferry and"
                    ' /dev/vhost-vsock; print its output, end with its status.',
        epilog='RF_BIN names another program than build/ringferry.')
    parser.add_argument('--kernel', default='6.12', choices=sorted(METAPACKAGE),
                        help="Debian's kernel (default: 6.12)")
    parser.add_argument('--processors', type=int, default=2, help='default: 2')
    parser.add_argument('--megabytes', type=int, default=1024, help='its memory (default: 1024)')
    parser.add_argument('--seconds', type=int, default=600,
                        help='time the command may take (default: 600)')
    parser.add_argument('--program', action='append', default=[], metavar='FILE',
                        help='a further program to put into its PATH; may be repeated')
    parser.add_argument('command', nargs='+', help='words of a shell command, joined by blanks')
    return parser.parse_args()


def run(options):
    """Boot, run, print. Return: the command's exit status."""
    os.environ['RF_KERNEL'] = options.kernel
    extra = [shutil.which(program) or program for program in options.program]
    for program in [binary(), *extra]:
        check(os.access(program, os.X_OK), f'{program} is no program; ./dev build makes ringferry')
    with Work() as work, Machine(work, None, megabytes=options.megabytes,
                                 programs=[binary(), *extra],
                                 processors=options.processors) as machine:
        machine.load_vhost()
        release = machine.shell('uname -r').strip()
        print(f'# Linux {release}, {options.processors} processors, under QEMU\'s emulation: '
              'copying is many times slower beside the rest than on a real machine',
              file=sys.stderr)
        status, output = machine.run(' '.join(options.command), options.seconds)
    sys.stdout.write(output)
    return status


def main():
    """Run it; everything that was started ends with it, Ctrl-C included."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run(parse_arguments())
    except KeyboardInterrupt:
        return 130
    except (Failure, Skip, OSError, subprocess.TimeoutExpired) as failure:
        print(f'in-linux: FAILED: {failure}', file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
