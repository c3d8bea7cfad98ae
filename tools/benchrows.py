# SPDX-License-Identifier: BSD-3-Clause
"""The rows that `ringferry bench --json` writes, and the figures that are made from them.

A *run* is one JSON file; a folder holds those of one `./dev figures`. A *figure* is a ratio of two
values of one run, which are measured in turn there. Used by tools/figures and tools/performance.
"""
import collections
import json
import os

RINGS = (128, 256)

# One line of a table of figures: what is compared, the aim as text, how it is compared (">=" or
# "<="), and for each cell its label, aim and value by ring (None: not measured).
Line = collections.namedtuple('Line', 'title sign cells')
Cell = collections.namedtuple('Cell', 'label aim values')

SIZES = (64, 256, 1024, 4096, 16384, 65536, 262144)
PEER_SIZES = tuple(64 << i for i in range(14) if 64 << i != 128)


# Runs that are drawn, too.
PLOTS = ('stream-256', 'peer-256', 'pingpong-256', 'limits-256')


class Missing(Exception):
    """A row that a figure needs was not measured."""


def size_text(size):
    """A size as people write it."""
    for unit in ('', 'K', 'M'):
        if size < 1024 or size % 1024:
            return f'{size}{unit}'
        size //= 1024
    return f'{size}G'


class Folder:
    """The runs of a folder, by name; each read once."""

    def __init__(self, path):
        self.path = path
        self._runs = {}

    def run(self, name):
        """The content of NAME.json; None without it, or if it is incomplete."""
        if name not in self._runs:
            try:
                with open(os.path.join(self.path, name + '.json'), encoding='utf-8') as file:
                    self._runs[name] = json.load(file)
            except (FileNotFoundError, ValueError):
                # It was not run, or not to its end.
                self._runs[name] = None
        return self._runs[name]

    def rows(self, name, **want):
        """The rows of a run that have these members."""
        run = self.run(name) or {'rows': []}
        return [row for row in run['rows']
                if all(row.get(key) == value for key, value in want.items())]

    def value(self, name, field, **want):
        """A member of the one row that has these others, of its counters or of its spread."""
        rows = self.rows(name, **want)
        if len(rows) != 1:
            raise Missing(f'{name}: {len(rows)} rows with {want}')
        for members in (rows[0], rows[0].get('counters'), rows[0].get('spread')):
            value = (members or {}).get(field)
            if value is not None:
                break
        else:
            raise Missing(f'{name}: no {field} with {want}')
        return value

    def ratio(self, name, field, above, below):
        """Of the values of two rows of one run."""
        below_value = self.value(name, field, **below)
        if not below_value:
            raise Missing(f'{name}: {field} is 0 with {below}')
        return self.value(name, field, **above) / below_value


def _cells(folder, labelled):
    """From (label, aim, function of (folder, ring)) to cells."""
    cells = []
    for label, aim, compute in labelled:
        values = {}
        for ring in RINGS:
            try:
                values[ring] = compute(folder, ring)
            except Missing:
                values[ring] = None
        cells.append(Cell(label, aim, values))
    return cells


def _gbps(run, above, below):
    return lambda folder, ring: folder.ratio(f'{run}-{ring}', 'gbps', above, below)


def _times(run, field, above, below):
    return lambda folder, ring: folder.ratio(f'{run}-{ring}', field, above, below)


def _stream(direction, size, variant):
    return {'bench': 'stream', 'dir': direction, 'size': size, 'variant': variant}


def _line_raw():
    aims = (10, 8, 6, 4, 1.5, 1, 1)
    return [(size_text(size), aim, _gbps('stream', _stream('g2h', size, 'default'),
                                         _stream('g2h', size, 'raw')))
            for size, aim in zip(SIZES, aims)]


def _line_ceiling():
    return [('64K', 0.85, _gbps('ceiling', _stream('g2h', 65536, 'default'),
                                _stream('g2h', 262144, 'raw-best')))]


def _line_to_guest():
    return [(size_text(size), aim, _gbps('stream', _stream('h2g', size, 'default'),
                                         _stream('h2g', size, 'raw')))
            for size, aim in ((65536, 0.9), (4096, 0.7))]


def _line_embed():
    def compute(variant, limit):
        def ratio(folder, ring):
            ours = folder.value(f'embed-{ring}', 'gbps', **_stream('g2h', 65536, variant))
            other = folder.value(f'limits-{ring}', 'gbps', size=65536, variant=limit)
            return ours / other
        return ratio
    return [('other thread / pipeline', 0.8, compute('other', 'copies-2-threads')),
            ('same thread / both copies', 0.8, compute('same', 'copies-1-thread'))]


def _line_peer():
    def compute(direction, size):
        def ratio(folder, ring):
            run = f'peer-{ring}'
            ours = folder.value(run, 'gbps', **_stream(direction, size, 'default'))
            theirs = max(folder.value(run, 'gbps', **_stream(direction, size, name))
                         for name in ('vhost-device-vsock', 'vhost-device-vsock-1m'))
            ceiling = folder.value(f'ceiling-{ring}', 'gbps', **_stream('g2h', 262144, 'raw-best'))
            # Whichever is less is asked for: 3 times theirs, or 0.9 of the ceiling.
            return ours / min(theirs * 3, ceiling * 0.9) * 3
        return ratio
    return [(f'{direction} {size_text(size)}', 3, compute(direction, size))
            for direction in ('g2h', 'h2g') for size in PEER_SIZES]


def _pingpong(size, variant):
    return {'bench': 'pingpong', 'size': size, 'variant': variant}


def _line_pingpong(other, aims):
    return [(f'{variant} {size_text(size)}', aim,
             _times('pingpong', 'p50_ns', _pingpong(size, variant), _pingpong(size, other)))
            for variant, aim in aims for size in (512, 4096)]


def _line_direct_times():
    return [(f'{above} {size_text(size)}', aim,
             _times('published-a', 'mean_ns', _pingpong(size, above), _pingpong(size, below)))
            for above, below, aim in (('direct', 'queued', 0.92),
                                      ('direct-polling', 'queued-polling', 1.0))
            for size in (512, 4096)]


def _line_direct_rates():
    return [(f'{size_text(size)} x {streams}', 1.3,
             _gbps('published-a', dict(_stream('g2h', size, 'direct'), streams=streams),
                   dict(_stream('g2h', size, 'queued'), streams=streams)))
            for streams in (1, 2, 4) for size in (4096, 65536, 131072)]


def _line_credit():
    return [(size_text(size), 1.7, _gbps('credit', _stream('h2g', size, 'batched'),
                                         _stream('h2g', size, 'eager')))
            for size in (64, 256, 1024, 4096)]


def _line_packets():
    return [('64K', 1.5, _gbps('published-b', _stream('g2h', 65536, 'p23'),
                               _stream('g2h', 65536, 'p1')))]


def _line_buffers():
    return [(size_text(size), 1.1, _gbps('published-b', _stream('h2g', size, 'p4'),
                                         _stream('h2g', size, 'p23')))
            for size in PEER_SIZES if size >= 16384]


def _line_kernel():
    return [(f'{direction} {size_text(size)}', 1,
             _gbps('kernel', _stream(direction, size, 'default'),
                   _stream(direction, size, 'kernel')))
            for direction in ('g2h', 'h2g') for size in (4096, 65536)]


def _line_streams():
    def aggregate(size):
        return lambda folder, ring: (
            folder.value(f'streams16-{ring}', 'gbps', **_stream('g2h', size, 'default')) /
            folder.value(f'streams1-{ring}', 'gbps', **_stream('g2h', size, 'default')))

    def slowest(size):
        return lambda folder, ring: folder.value(f'streams16-{ring}', 'slowest_to_fastest',
                                                 **_stream('g2h', size, 'default'))
    return ([(f'16 / 1 {size_text(size)}', 1, aggregate(size)) for size in (4096, 65536)] +
            [(f'slowest / fastest {size_text(size)}', 0.8, slowest(size)) for size in (4096, 65536)])


def _line_rotate():
    def compute(folder, ring):
        few = folder.value(f'rotate10-{ring}', 'gbps', **_stream('g2h', 64, 'default'))
        return few / folder.value(f'rotate10000-{ring}', 'gbps', **_stream('g2h', 64, 'default'))
    return [('64', 1.2, compute)]


def _line_auto():
    def best(folder, run, field, pick, want):
        return pick(folder.value(run, field, **want(variant)) for variant in ('never', 'poll20'))

    def times(cores, field):
        def compute(folder, ring):
            run = f'auto-pingpong-{cores}-{ring}'
            return (best(folder, run, field, min, lambda variant: _pingpong(512, variant)) /
                    folder.value(run, field, **_pingpong(512, 'auto')))
        return compute

    def rate(cores):
        def compute(folder, ring):
            run = f'auto-stream-{cores}-{ring}'
            return (folder.value(run, 'gbps', **_stream('g2h', 4096, 'auto')) /
                    best(folder, run, 'gbps', max, lambda variant: _stream('g2h', 4096, variant)))
        return compute
    return [cell for cores in (1, 2) for cell in (
        (f'p50, cores: {cores}', 0.95, times(cores, 'p50_ns')),
        (f'p99, cores: {cores}', 0.95, times(cores, 'p99_ns')),
        (f'stream 4K, cores: {cores}', 0.95, rate(cores)))]


def _line_idle():
    def compute(folder, _ring):
        return folder.value('conns', 'idle_cpu_percent', bench='conns')
    return [('% CPU', 0.05, compute)]


LINES = (
    ('stream via unix, guest to host / raw AF_UNIX of the same size', '>=', _line_raw),
    ('the same / the ceiling', '>=', _line_ceiling),
    ('host to guest / raw', '>=', _line_to_guest),
    ('stream via embed, 64K', '>=', _line_embed),
    ('stream via unix / vhost-device-vsock 0.3 (where 0.9 of the ceiling is less than 3 times '
     'theirs: scaled, so that 3 is the aim)', '>=', _line_peer),
    ('ping-pong p50 / raw AF_UNIX', '<=',
     lambda: _line_pingpong('raw', (('polling', 1.3), ('sleeping', 2.3)))),
    ('ping-pong p50 / vhost-device-vsock', '<=',
     lambda: _line_pingpong('vhost-device-vsock', (('sleeping', 0.8), ('polling', 0.5)))),
    ('A: ping-pong mean, direct / queued', '<=', _line_direct_times),
    ('A: stream guest to host, direct / queued', '>=', _line_direct_rates),
    ('B1: few credit updates / eager, via embed, host to guest', '>=', _line_credit),
    ('B2+B3: large packets on / off, guest to host', '>=', _line_packets),
    ('B4: receive buffers of 64K / 4K, host to guest', '>=', _line_buffers),
    ("ours / the kernel's vhost-vsock, inside an emulated Linux guest", '>=', _line_kernel),
    ('16 streams', '>=', _line_streams),
    ('time per packet, rotating over 10,000 connections / over 10', '<=', _line_rotate),
    ('--poll-us auto / the better of never and 20', '>=', _line_auto),
    ('idle', '<=', _line_idle),
)


def lines(folder):
    """All lines of the table of figures."""
    return [Line(title, sign, _cells(folder, labelled())) for title, sign, labelled in LINES]


def meets(sign, value, aim):
    """Does a figure, as it is printed, meet its aim?"""
    value = round(value, 2)
    return value >= aim if sign == '>=' else value <= aim
