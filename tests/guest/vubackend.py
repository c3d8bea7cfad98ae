# SPDX-License-Identifier: BSD-3-Clause
"""A small vhost-user vsock back end that reports every packet and its buffers: for recording only.

It trusts its front end, knows split rings without event index and QEMU's order of messages.
"""
import array
import collections
import mmap
import os
import queue
import select
import socket
import struct
import threading

OPS = ('invalid', 'request', 'response', 'rst', 'shutdown', 'rw', 'credit_update', 'credit_request')
OP = {name: number for number, name in enumerate(OPS)}
HDR = struct.Struct('<QQIIIHHIII')
Header = collections.namedtuple(
    'Header', 'src_cid dst_cid src_port dst_port len type op flags buf_alloc fwd_cnt')

F_PROTOCOL, F_INDIRECT, F_VERSION_1 = 1 << 30, 1 << 28, 1 << 32
PROTOCOL_CONFIG = 1 << 9
(GET_FEATURES, SET_MEM_TABLE, SET_NUM, SET_ADDR, SET_BASE, GET_BASE, SET_KICK, SET_CALL,
 GET_PROTOCOL, GET_CONFIG) = 1, 5, 8, 9, 10, 11, 12, 13, 15, 24
DESC_NEXT, DESC_WRITE, DESC_INDIRECT = 1, 2, 4
RX, TX = 0, 1

Chain = collections.namedtuple('Chain', 'head indirect pieces')


class Ring:
    """One virtqueue, device side."""

    def __init__(self, memory):
        self.memory = memory
        self.num = self.taken = 0
        self.desc = self.avail = self.used = 0
        self.kick = self.call = -1

    def _at(self, address, length):
        return self.memory(address, length, True)

    def pop(self):
        """The next chain, or None."""
        if self.kick < 0:
            return None
        index, = struct.unpack('<H', self._at(self.avail + 2, 2))
        if index == self.taken:
            return None
        slot = self.avail + 4 + 2 * (self.taken % self.num)
        head, = struct.unpack('<H', self._at(slot, 2))
        self.taken = (self.taken + 1) & 0xffff
        return self._chain(head)

    def _chain(self, head):
        table = self._at(self.desc, 16 * self.num)
        address, length, flags, _ = struct.unpack_from('<QIHH', table, 16 * head)
        indirect = bool(flags & DESC_INDIRECT)
        entry = head
        if indirect:
            table, entry = self.memory(address, length), 0
        pieces = []
        while True:
            address, length, flags, following = struct.unpack_from('<QIHH', table, 16 * entry)
            pieces.append((self.memory(address, length), bool(flags & DESC_WRITE)))
            if not flags & DESC_NEXT:
                return Chain(head, indirect, pieces)
            entry = following

    def push(self, chain, written):
        """Return a chain, and tell the guest."""
        index, = struct.unpack('<H', self._at(self.used + 2, 2))
        element = self._at(self.used + 4 + 8 * (index % self.num), 8)
        element[:] = struct.pack('<II', chain.head, written)
        self._at(self.used + 2, 2)[:] = struct.pack('<H', (index + 1) & 0xffff)
        os.write(self.call, struct.pack('<Q', 1))


class VsockBackEnd(threading.Thread):
    """Serves one front end; for every packet calls on_packet(sender, Header, Chain, payload)."""

    def __init__(self, path, cid, on_packet):
        super().__init__(daemon=True)
        self.cid = cid
        self.on_packet = on_packet
        self.regions = []
        self.rings = [Ring(self._memory), Ring(self._memory)]
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.front = self.failure = None
        self.orders = queue.Queue()
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def call(self, function, *arguments):
        """From another thread: run a function in the back end's and wait for it."""
        done = threading.Event()
        self.orders.put((function, arguments, done))
        os.eventfd_write(self.wake, 1)
        if not done.wait(10) or self.failure:
            raise TimeoutError('recording back end') from self.failure

    def send(self, header, payload=b''):
        """Put one packet into the guest's next receive buffer."""
        chain = self.rings[RX].pop()
        if not chain:
            raise BufferError('guest has no receive buffer')
        self.on_packet('host', header, chain, payload)
        data = HDR.pack(*header) + payload
        if len(data) > sum(len(piece) for piece, writable in chain.pieces if writable):
            raise BufferError(f"{len(data)} bytes do not fit the guest's receive buffer")
        written = 0
        for piece, writable in chain.pieces:
            part = data[written:written + len(piece)] if writable else b''
            piece[:len(part)] = part
            written += len(part)
        self.rings[RX].push(chain, written)

    def run(self):
        self.front, _ = self.listener.accept()
        poll = select.poll()
        poll.register(self.front, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self.wake:
                    os.eventfd_read(fd)
                    self._orders()
                elif fd != self.front.fileno():
                    os.read(fd, 8)
                    self._transmitted()
                elif not self._message(poll):
                    return

    def _orders(self):
        while not self.orders.empty():
            function, arguments, done = self.orders.get()
            try:
                function(*arguments)
            except BufferError as failure:
                self.failure = failure
            done.set()

    def _transmitted(self):
        while (chain := self.rings[TX].pop()):
            data = b''.join(bytes(piece) for piece, _ in chain.pieces)
            self.rings[TX].push(chain, 0)
            header = Header(*HDR.unpack_from(data))
            self.on_packet('guest', header, chain, data[HDR.size:HDR.size + header.len])

    def _memory(self, address, length, front_end_address=False):
        for gpa, size, uva, offset, mapping in self.regions:
            base = uva if front_end_address else gpa
            if base <= address and address + length <= base + size:
                start = offset + address - base
                return memoryview(mapping)[start:start + length]
        raise KeyError(hex(address))

    def _message(self, poll):
        head, ancillary, _, _ = self.front.recvmsg(12, socket.CMSG_SPACE(8 * 4))
        if len(head) < 12:
            return False
        fds = array.array('i')
        for _, _, data in ancillary:
            fds.frombytes(data)
        request, _, size = struct.unpack('<III', head)
        body = self.front.recv(size) if size else b''
        reply = self._handle(request, body, fds, poll)
        if reply is not None:
            self.front.sendall(struct.pack('<III', request, 5, len(reply)) + reply)
        return True

    def _handle(self, request, body, fds, poll):
        ring = self.rings[body[0] & 1] if body else None
        if request == GET_FEATURES:
            return struct.pack('<Q', F_VERSION_1 | F_PROTOCOL | F_INDIRECT)
        if request == GET_PROTOCOL:
            return struct.pack('<Q', PROTOCOL_CONFIG)
        if request == GET_CONFIG:
            return body[:12] + struct.pack('<Q', self.cid)
        if request == GET_BASE:
            if ring.kick >= 0:
                poll.unregister(ring.kick)
                ring.kick = -1
            return struct.pack('<II', body[0], ring.taken)
        if request == SET_MEM_TABLE:
            self.regions = [(gpa, bytes_, uva, offset, mmap.mmap(fd, bytes_ + offset))
                            for fd, (gpa, bytes_, uva, offset)
                            in zip(fds, struct.iter_unpack('<QQQQ', body[8:]))]
        elif request == SET_NUM:
            ring.num, = struct.unpack_from('<I', body, 4)
        elif request == SET_BASE:
            ring.taken, = struct.unpack_from('<I', body, 4)
        elif request == SET_ADDR:
            ring.desc, ring.used, ring.avail = struct.unpack_from('<QQQ', body, 8)
        elif request == SET_KICK:
            ring.kick = fds[0]
            poll.register(ring.kick, select.POLLIN)
        elif request == SET_CALL:
            ring.call = fds[0]
        return None
