# SPDX-License-Identifier: BSD-3-Clause
"""Streams whose every byte is known: the host's half of vsockload.c, and both together."""
import itertools
import selectors
import socket
import threading
import time

from guestlab import HOST_CID
from tap import Failure, check, check_equal, wait_for

BLOCK = 65521
PHASE = 7919
NAME_BYTES = 4
CHUNK_MAX = 262144
# No two streams have the same, or what one gets of another would not show.
NAMES = itertools.count(1)


def make_pattern():
    """The block of random bytes, repeated far enough for one send() or recv() at any phase."""
    block = bytearray()
    value = 1
    for _ in range(BLOCK):
        value = (value * 1103515245 + 12345) & 0xffffffff
        block.append(value >> 16 & 0xff)
    return memoryview(bytes(block) * (2 + CHUNK_MAX // BLOCK))


PATTERN = make_pattern()


class Stream:
    """One connection, both directions."""

    def __init__(self, sock, name, load):
        self.sock = sock
        self.load = load
        self.name = name
        self.name_in = b''
        self.sent = self.received = 0
        self.shut = self.ended = False
        self.chunk = load.chunk[0]
        sock.setblocking(False)

    def _at(self, name, position, length):
        start = (position + name * PHASE) % BLOCK
        return PATTERN[start:start + length]

    def send_some(self):
        """One send(); the first bytes are the stream's name."""
        end = self.load.end()
        if self.sent < min(end, NAME_BYTES):
            data = self.name.to_bytes(NAME_BYTES, 'little')[self.sent:]
        else:
            data = self._at(self.name, self.sent, min(self.chunk, max(end - self.sent, 0)))
        if data:
            try:
                self.sent += self.sock.send(data)
            except BlockingIOError:
                return
            low, high = self.load.chunk
            self.chunk = low + (self.chunk - low + 37) % (high - low + 1)
        if self.sent >= end:
            self.sock.shutdown(socket.SHUT_WR)
            self.shut = True

    def receive_some(self):
        """One recv(), every byte of it looked at."""
        try:
            data = self.sock.recv(self.load.read)
        except BlockingIOError:
            return
        if not data:
            self.ended = True
            return
        named = NAME_BYTES - len(self.name_in)
        self.name_in += data[:named]
        self.received += min(named, len(data))
        data = data[named:]
        if data:
            name = int.from_bytes(self.name_in, 'little')
            check(self._at(name, self.received, len(data)) == data,
                  f'stream {name}: wrong bytes in [{self.received}, {self.received + len(data)})')
            self.received += len(data)

    def events(self):
        """What to wait for."""
        read = not self.ended and self.load.reads()
        write = not self.shut and (self.ended or not self.load.after)
        return (selectors.EVENT_READ if read else 0) | (selectors.EVENT_WRITE if write else 0)


class Load(threading.Thread):
    """Serves connections, in a thread of its own, to the end of both directions of each.

    Sends @length bytes on each, or for so many @seconds; @chunk is the range of lengths of a send,
    @read the most bytes of a recv, @pause the seconds to wait after each round, @wait those before
    the first recv; with @after it sends only behind the peer's end of file.
    """

    # pylint: disable=too-many-arguments
    def __init__(self, socks, length=0, seconds=0, chunk=(65536, 65536), read=CHUNK_MAX, pause=0,
                 wait=0, after=False):
        super().__init__(daemon=True)
        self.chunk = chunk
        self.read = read
        self.pause = pause
        self.after = after
        self.length = length
        now = time.monotonic()
        self.end_time = now + seconds if seconds else None
        self.read_time = now + wait
        self.error = None
        self.streams = [Stream(sock, next(NAMES), self) for sock in socks]
        self.start()

    def end(self):
        """How many bytes each stream sends."""
        if self.end_time is None:
            return self.length
        return 1 << 62 if time.monotonic() < self.end_time else 0

    def reads(self):
        """Is it time to read?"""
        return time.monotonic() >= self.read_time

    @property
    def sent(self):
        """Bytes sent on all streams."""
        return sum(stream.sent for stream in self.streams)

    @property
    def received(self):
        """Bytes received on all streams."""
        return sum(stream.received for stream in self.streams)

    def run(self):
        try:
            with selectors.DefaultSelector() as selector:
                self._serve(selector)
        except (OSError, Failure) as error:
            self.error = f'host: {error!r}, {self.sent} bytes sent, {self.received} received'

    def _serve(self, selector):
        left = {stream.sock: stream for stream in self.streams}
        asked = {}
        while left:
            for sock, stream in list(left.items()):
                events = stream.events()
                if events != asked.get(sock, 0):
                    if sock in asked:
                        selector.unregister(sock)
                        del asked[sock]
                    if events:
                        selector.register(sock, events, stream)
                        asked[sock] = events
                if stream.shut and stream.ended:
                    del left[sock]
                    sock.close()
            for key, events in selector.select(0.1):
                if events & selectors.EVENT_WRITE:
                    key.data.send_some()
                if events & selectors.EVENT_READ:
                    key.data.receive_some()
            if self.pause:
                time.sleep(self.pause)

    def finish(self, seconds=120):
        """Wait for both ends of file of all. Return: bytes sent and received."""
        self.join(seconds)
        check(not self.error, self.error)
        check(not self.is_alive(), f'transfer hangs after {self.sent} bytes sent,'
                                   f' {self.received} received')
        return self.sent, self.received


class Pair:
    """@n connections that the guest asks for and @n that the host does, vsockload at the guest's
    ends with the words @words; at the host's nothing moves before begin()."""

    def __init__(self, guest, back_end, port, words='', n=1):
        self.guest = guest
        self.names = f'out{port}', f'in{port}'
        with back_end.listen(port) as listener:
            guest.start(self.names[0], f'vsockload connect {HOST_CID} {port} n {n} {words}')
            self.accepted = [listener.accept()[0] for _ in range(n)]
        guest.start(self.names[1], f'vsockload accept {port} n {n} {words}')
        self.connected = [back_end.connect(port) for _ in range(n)]
        self.loads = []

    def begin(self, **options):
        """Serve the host's ends, see Load. Return: self"""
        self.loads = [Load(socks, **options) for socks in (self.accepted, self.connected)]
        return self

    @property
    def received(self):
        """Bytes that the host has received."""
        return sum(load.received for load in self.loads)

    def wait_received(self, length, seconds=30):
        """Wait until the host has received so many bytes."""
        wait_for(lambda: self.received >= length, seconds, f'{length} bytes from the guest')

    def wait_ended(self, seconds=30):
        """The guest is gone: the host's ends end, with whatever error."""
        for load in self.loads:
            load.join(seconds)
            check(not load.is_alive(), 'a connection of the guest that is gone does not end')

    def finish(self, seconds=120):
        """Both ends of each must have got what the other sent. Return: bytes, both ways together"""
        total = 0
        for name, load in zip(self.names, self.loads):
            status, output = self.guest.finish(name, seconds)
            sent, received = load.finish(seconds)
            check_equal((status, output), (0, f'sent {received} received {sent}\n'),
                        f'guest, {name}')
            total += sent + received
        return total
