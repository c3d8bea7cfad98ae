#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""tools/demo.sh, as ./dev demo runs it.

RF_BIN is the program.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, 'tests', 'guest'))
# pylint: disable=wrong-import-position
from tap import check, check_equal, run_cases, wait_for  # noqa: E402

DEMO = os.path.join(ROOT, 'tools', 'demo.sh')
WORK = tempfile.mkdtemp(prefix='rf-test-demo-')


def folders():
    """Folders that demos made."""
    return [os.path.join(WORK, name) for name in os.listdir(WORK)
            if name.startswith('ringferry-demo.')]


def start(*arguments):
    """Run the demo in a session of its own, so that what it leaves running can be found."""
    return subprocess.Popen([DEMO, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True,
                            env=dict(os.environ, TMPDIR=WORK))


def session_processes(session):
    """Processes of a session that still run."""
    found = []
    for pid in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{pid}/stat', encoding='ascii', errors='replace') as file:
                fields = file.read().rsplit(')', 1)[1].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != 'Z':
            found.append(int(pid))
    return found


def check_nothing_left(demo):
    """No process and no folder of the demo may be there."""
    check_equal(session_processes(demo.pid), [], 'processes left')
    check_equal(folders(), [], 'folders left')


def carries_a_file():
    """The demo carries a file both ways, lets the guest call, and cleans up."""
    name = os.path.join(WORK, 'a file')
    with open(name, 'wb') as file:
        file.write(os.urandom(5000001))
    with start('--file', name) as demo:
        out, err = demo.communicate(timeout=60)
    check_equal((demo.returncode, err), (0, ''), 'its end')
    check_equal(out.count('SHA-256 is the same'), 2, 'checks')
    for text in ('host -> guest  5000001 bytes', 'guest -> host  5000001 bytes',
                 'the host heard:  Hello host', 'the guest heard: Hello guest', 'With a VM: '):
        check(text in out, f'not said: {text}')
    check_nothing_left(demo)


def ends_when_told():
    """Ctrl-C in the middle of a transfer leaves nothing behind."""
    with start('--size', '64m') as demo:
        made = wait_for(folders, 20, 'the demo to begin')
        path = os.path.join(made[0], 'guest.file')
        wait_for(lambda: os.path.exists(path), 30, 'the transfer to begin')
        os.killpg(demo.pid, signal.SIGINT)
        demo.communicate(timeout=20)
    check_equal(demo.returncode, 130, 'exit status')
    check_nothing_left(demo)


def names_what_is_wrong():
    """Arguments that are not allowed are named in one line."""
    for arguments, word in ((['--nope'], '--nope'), (['--size', '4x'], '--size'),
                            (['--size'], '--size'), (['--file', '/nowhere'], '--file')):
        with start(*arguments) as demo:
            out, err = demo.communicate(timeout=20)
        check_equal((demo.returncode, out, err.count('\n')), (2, '', 1), f'{arguments}')
        check(f'demo: {word}' in err, err)


if __name__ == '__main__':
    try:
        STATUS = run_cases([carries_a_file, ends_when_told, names_what_is_wrong])
    finally:
        shutil.rmtree(WORK)
    sys.exit(STATUS)
