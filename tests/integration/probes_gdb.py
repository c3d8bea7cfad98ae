# SPDX-License-Identifier: BSD-3-Clause
"""Run inside gdb: write down every hit of ringferry's probes, with the arguments.

RF_PROBES is the file for {NAME: [[THREAD, ARGUMENT...], ...]}, complete when the program under gdb
has been stopped by SIGUSR2; before, it holds the program's process id, on a line of its own.
"""
import json
import os
import re
import time

import gdb  # pylint: disable=import-error

HITS = {}


class Probe(gdb.Breakpoint):
    """All places of one probe."""

    def __init__(self, name):
        super().__init__(f'-probe-stap ringferry:{name}')
        self.silent = True
        self.hits = HITS.setdefault(name, [])

    def stop(self):
        """The program goes on at once."""
        count = int(gdb.parse_and_eval('$_probe_argc'))
        self.hits.append([gdb.selected_thread().num] +
                         [int(gdb.parse_and_eval(f'(long)$_probe_arg{n}')) for n in range(count)])
        return False


def write(text):
    """A whole file at once."""
    path = os.environ['RF_PROBES']
    with open(path + '.new', 'w', encoding='ascii') as file:
        file.write(text)
    os.rename(path + '.new', path)


gdb.execute('set startup-with-shell off')
gdb.execute('handle SIGUSR1 nostop noprint pass')
gdb.execute('handle SIGUSR2 stop print nopass')
listing = gdb.execute('info probes stap ^ringferry$', to_string=True)
for found in sorted(set(re.findall(r'^stap +ringferry +(\w+)', listing, re.M))):
    Probe(found)
gdb.execute('starti')
write(f'{gdb.selected_inferior().pid}\n')
gdb.execute('continue')
write(json.dumps(HITS))
# Killed now, it would wake the other half, which is to be stopped as well. The test ends this gdb.
time.sleep(60)
