# SPDX-License-Identifier: BSD-3-Clause
"""What the host's end of a stream does in the guest tests."""
import hashlib
import random
import socket
import threading
import time

from guestlab import HOST_CID
from tap import Failure, check, check_equal

MIB = 1 << 20


def seeded(length, seed=1):
    """Bytes that are the same each time."""
    source = random.Random(seed)
    return b''.join(source.randbytes(min(MIB, length - at)) for at in range(0, length, MIB))


def receive_all(sock):
    """Everything up to end of file."""
    parts = []
    while (part := sock.recv(262144)):
        parts.append(part)
    return b''.join(parts)


def check_ended(sock, seconds=10):
    """The peer ends the connection: end of file, or a reset."""
    sock.settimeout(seconds)
    try:
        check_equal(sock.recv(1), b'', 'received on a connection that should have ended')
    except ConnectionResetError:
        pass
    except socket.timeout:
        raise Failure(f'connection did not end within {seconds} s') from None


def echo_check(sock, text):
    """What is sent comes back, and the connection is closed in order."""
    sock.sendall(text)
    sock.shutdown(socket.SHUT_WR)
    check_equal(receive_all(sock), text, 'echo')
    sock.close()


class Exchange:
    """Both directions of a connection at once: sends @data, receives to end of file."""

    def __init__(self, sock, data):
        self.sock = sock
        self.data = data
        self.received = 0
        self.digest = hashlib.sha256()
        self.error = None
        self.threads = [threading.Thread(target=self._guard, args=(work,), daemon=True)
                        for work in (self._send, self._receive)]
        for thread in self.threads:
            thread.start()

    def _guard(self, work):
        try:
            work()
        except OSError as error:
            self.error = f'{work.__name__}: {error} after {self.received} bytes received'

    def _send(self):
        self.sock.sendall(self.data)
        self.sock.shutdown(socket.SHUT_WR)

    def _receive(self):
        while (part := self.sock.recv(262144)):
            self.digest.update(part)
            self.received += len(part)

    def wait_received(self, length, seconds=30):
        """Wait until so many bytes have arrived."""
        end = time.monotonic() + seconds
        while self.received < length and time.monotonic() < end:
            check(not self.error, self.error)
            time.sleep(0.01)
        check(self.received >= length, f'only {self.received} of {length} bytes in {seconds} s')

    def finish(self, seconds=120):
        """Wait for both ends of file; the SHA-256 of what arrived."""
        for thread in self.threads:
            thread.join(seconds)
            check(not thread.is_alive(), f'transfer hangs after {self.received} bytes received')
        check(not self.error, self.error)
        self.sock.close()
        return self.digest.hexdigest()


def crossing(guest, back_end):
    """New connections work in both directions, with 16 MiB each."""
    guest.start('cmd', 'socat -u VSOCK-LISTEN:6000 - | tee /tmp/16 | sha256sum')
    data = seeded(16 * MIB)
    with back_end.connect(6000) as sock:
        sock.settimeout(120)
        sock.sendall(data)
    digest = hashlib.sha256(data).hexdigest()
    output = guest.finish('cmd', 120)[1]
    check_equal(output.split()[0], digest, 'SHA-256 of what the guest received')
    with back_end.listen(6001) as listener:
        guest.start('cmd', f'socat -u /tmp/16 VSOCK-CONNECT:{HOST_CID}:6001')
        with listener.accept()[0] as sock:
            check(receive_all(sock) == data, 'host received something else')
    check_equal(guest.finish('cmd'), (0, ''), 'guest')
