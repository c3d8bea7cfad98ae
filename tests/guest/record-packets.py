#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Record the packets of a Linux guest: tests/fixtures/linux-VERSION-packets.txt.

record-packets.py [FILE] - needs what the guest tests need. RF_GUEST_PROGRAMS is the directory
of the guest's programs, RF_KERNEL=6.12 records that kernel.
"""
import io
import os
import sys
import time

from guestlab import GUEST_CID, HOST_CID, Machine, Work, kernel_version, programs
import guestimage
from tap import check, check_equal, wait_for
from vubackend import HDR, OP, OPS, Header, VsockBackEnd

STREAM = 1
RCV, SEND, BOTH = 1, 2, 3
WINDOW = 262144
PORT = 5000
HOST_PORT = 1 << 30
REFUSED_PORT, SILENT_PORT, SMALL_PORT = 9, 10, 11

TITLE = """\
# SPDX-License-Identifier: BSD-3-Clause
# vsock packets between a Linux {version} guest ({release})
# and a host, as tests/guest/record-packets.py recorded them under {qemu} from vhost-user-vsock-pci
# with the ring features {features}; the host's end was tests/guest/vubackend.py.
# Guest CID {cid}, host CID 2. Byte n of what the guest sends on a connection is n modulo 251.
#
# scene NAME
# guest|host direct|indirect SIZES HEADER PAYLOAD
#   who sent the packet; how its buffer was described: pieces in one chain of descriptors, or in an
#   indirect table; the pieces' sizes, r for readable by the device and w for writable;
#   the 44 bytes of the header; the bytes of payload.
"""


class Peer:
    """The host's end of the connections, one at a time; it follows the guest."""

    def __init__(self, out):
        self.out = out
        self.back_end = None
        self.addresses = None
        self.received = self.told = self.window = 0
        self.ops = []

    def scene(self, name):
        """Begin a scene: nothing is left of the connection before."""
        self.out.write(f'\nscene {name}\n')
        self.addresses = None
        self.received = self.told = 0
        self.window = WINDOW
        self.ops = []

    def on_packet(self, sender, header, chain, payload):
        """Write a packet down; answer those of the guest."""
        sizes = '+'.join(f'{len(piece)}{"w" if writable else "r"}'
                         for piece, writable in chain.pieces)
        layout = 'indirect' if chain.indirect else 'direct'
        self.out.write(f'{sender} {layout} {sizes} {HDR.pack(*header).hex()} {len(payload)}\n')
        if sender == 'guest':
            check_equal(len(payload), header.len, 'payload')
            self.ops.append(OPS[header.op])
            self._answer(header, payload)

    def _answer(self, header, payload):
        self.addresses = (HOST_CID, header.src_cid, header.dst_port, header.src_port)
        if header.op == OP['request']:
            self.window = 4096 if header.dst_port == SMALL_PORT else WINDOW
            if header.dst_port == REFUSED_PORT:
                self.send('rst')
            elif header.dst_port != SILENT_PORT:
                self.send('response')
        elif header.op == OP['shutdown'] and header.flags == BOTH:
            self.send('rst')
        elif header.op == OP['rw']:
            first = self.received
            pattern = bytes((first + n) % 251 for n in range(len(payload)))
            check(payload == pattern, 'payload differs')
            self.received += header.len
            if self.received - self.told >= self.window // 4:
                self.send('credit_update')

    def send(self, operation, flags=0, payload=b''):
        """Send a packet of the connection; in the back end's thread."""
        self.told = self.received
        self.back_end.send(Header(*self.addresses, len(payload), STREAM, OP[operation], flags,
                                  self.window, self.received), payload)

    def act(self, operation, flags=0, payload=b''):
        """Send a packet of the connection; in any other thread."""
        self.back_end.call(self.send, operation, flags, payload)

    def request(self):
        """Ask the guest for a connection to PORT."""
        self.addresses = (HOST_CID, GUEST_CID, HOST_PORT, PORT)
        self.act('request')

    def wait_op(self, operation):
        """Wait until the guest has sent an operation."""
        wait_for(lambda: operation in self.ops, 10, operation)


def guest_connects(guest, peer, name, words, port=PORT, status=0):
    """A scene in which the guest connects and then does @words by itself."""
    peer.scene(name)
    check_equal(guest.run(f'vsockcmd connect {HOST_CID} {port} {words}')[0], status, name)
    time.sleep(0.2)


def guest_scenes(guest, peer):
    """Scenes that the guest decides alone."""
    def scene(*arguments, **keywords):
        guest_connects(guest, peer, *arguments, **keywords)
    scene('connect-refused', '', port=REFUSED_PORT, status=1)
    scene('connect-close', 'sleep 100')
    sizes = (1, 2, 3, 63, 64, 128, 129, 1000, 4052, 4096, 65535)
    scene('send-sizes', ' '.join(f'send {size} sleep 50' for size in sizes))
    scene('send-64k', 'send 65536 sleep 100')
    scene('send-64k-and-1', 'send 65537 sleep 100')
    scene('send-256k', 'send 262144 sleep 100')
    scene('send-small-window', 'send 10000 sleep 100', port=SMALL_PORT)
    scene('send-close', 'send 5')
    scene('shutdown-both', 'send 5 shut 2 sleep 100')


def both_scenes(guest, peer):
    """Scenes in which the host acts while the guest's program waits."""
    def begin(name, words):
        peer.scene(name)
        guest.start('cmd', f'vsockcmd {words}')

    def end(status=0):
        check_equal(guest.finish('cmd')[0], status, 'vsockcmd')
        time.sleep(0.2)

    peer.scene('late-response')
    check_equal(guest.run(f'vsockcmd connect {HOST_CID} {SILENT_PORT}')[0], 1, 'late-response')
    peer.act('response')
    peer.wait_op('rst')
    begin('shutdown-send', f'connect {HOST_CID} {PORT} send 3 shut 1 recv 6 eof')
    peer.wait_op('shutdown')
    peer.act('rw', payload=b'answer')
    peer.act('shutdown', BOTH)
    end()
    begin('shutdown-receive', f'connect {HOST_CID} {PORT} shut 0 send 3 sleep 100')
    end()
    begin('peer-shutdown-send', f'connect {HOST_CID} {PORT} send 2 eof send 3')
    peer.wait_op('rw')
    peer.act('shutdown', SEND)
    end()
    begin('peer-shutdown-receive', f'connect {HOST_CID} {PORT} send 2 sleep 500')
    peer.wait_op('rw')
    peer.act('shutdown', RCV)
    end()
    begin('peer-reset', f'connect {HOST_CID} {PORT} send 2 sleep 300 eof')
    peer.wait_op('rw')
    peer.act('rst')
    end()
    begin('accept-close', f'accept {PORT} recv 10 send 4 sleep 100')
    accepted(peer)
    peer.act('rw', payload=b'0123456789')
    end()
    begin('accept-credit', f'accept {PORT} sleep 300 recv 261240 sleep 100')
    accepted(peer)
    for _ in range(70):
        peer.act('rw', payload=bytes(3732))
    end()
    begin('credit-request', f'connect {HOST_CID} {PORT} send 1 sleep 500')
    peer.wait_op('rw')
    peer.act('credit_request')
    end()
    peer.scene('accept-refused')
    peer.request()
    peer.wait_op('rst')


def accepted(peer):
    """Connect to the guest, again while nobody listens; only what succeeded is recorded."""
    text = peer.out
    while True:
        peer.ops = []
        peer.out = io.StringIO()
        peer.request()
        wait_for(lambda: peer.ops, 10, 'answer of the guest')
        if peer.ops == ['response']:
            break
        time.sleep(0.1)
    text.write(peer.out.getvalue())
    peer.out = text


def record(path):
    """Boot, play the scenes, write the file."""
    with Work() as work:
        vhost_socket = os.path.join(work, 'vhost.sock')
        with open(path, 'w', encoding='ascii') as out:
            peer = Peer(out)
            peer.back_end = VsockBackEnd(vhost_socket, GUEST_CID, peer.on_packet)
            peer.back_end.start()
            with Machine(work, vhost_socket, programs=programs()) as guest:
                write_title(out, guest)
                guest_scenes(guest, peer)
                both_scenes(guest, peer)


def write_title(out, guest):
    """Say what was recorded."""
    bits = guest.shell('cat /sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio*/features')
    features = '{' + ', '.join(str(n) for n, bit in enumerate(bits) if bit == '1') + '}'
    qemu = guestimage.run([guestimage.find_tool('qemu-system-x86_64'), '--version'], 20).decode()
    out.write(TITLE.format(version=kernel_version(), cid=GUEST_CID,
                           release=guest.shell('uname -rv').strip(), features=features,
                           qemu='QEMU ' + qemu.split()[3]))


if __name__ == '__main__':
    FIXTURES = os.path.join(os.path.dirname(guestimage.HERE), 'fixtures')
    record(sys.argv[1] if len(sys.argv) > 1 else
           os.path.join(FIXTURES, f'linux-{kernel_version()}-packets.txt'))
