# SPDX-License-Identifier: BSD-3-Clause
"""How streams end, and what a Linux guest's program sees of it."""
import contextlib
import socket
import threading
import time

from guestlab import HOST_CID
from load import Load
from streams import MIB, check_ended, receive_all
from tap import check, check_equal, comment, wait_for

COUNTING = bytes(range(251))


def counting(length):
    """Byte n is n modulo 251, as vsockcmd wants it."""
    return (COUNTING * (length // 251 + 1))[:length]


@contextlib.contextmanager
def step_by_step(guest, back_end, port, words):
    """A connection of the guest's vsockcmd, which must go well; the host's socket."""
    with back_end.listen(port) as listener:
        guest.start('cmd', f'vsockcmd connect {HOST_CID} {port} {words}')
        sock, _ = listener.accept()
        sock.settimeout(20)
        with sock:
            yield sock
            check_equal(guest.finish('cmd', 40), (0, ''), f'vsockcmd {words}')


def poll_host_half_closes(guest, back_end):
    """host half-closes: POLLRDHUP; when both have, POLLHUP"""
    words = 'poll out send 1 poll in,out,rdhup eof send 5 shut 1 poll in,rdhup,hup'
    with step_by_step(guest, back_end, 5100, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.shutdown(socket.SHUT_WR)
        check_equal(receive_all(sock), counting(6)[1:], 'after the half-close')


def poll_host_closes(guest, back_end):
    """host closes: POLLRDHUP without POLLHUP, send gives EPIPE, then EOF"""
    words = 'send 1 poll in,out,rdhup epipe eof shut 2 poll in,rdhup,hup'
    with step_by_step(guest, back_end, 5101, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.close()


def closed_with_data_queued(guest, back_end):
    """host sends 200000 bytes and closes, 100000 of the guest's unread: all arrive, then EOF"""
    words = 'send 1 send 100000 sleep 500 poll in,out,rdhup data 200000 eof epipe'
    with step_by_step(guest, back_end, 5102, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        wait_for(lambda: len(sock.recv(100000, socket.MSG_PEEK)) == 100000, 10, '100000 bytes')
        sock.sendall(counting(200000))
        sock.close()


def host_stops_receiving(guest, back_end):
    """host stops receiving with 1 MiB on its way: the guest gets EPIPE, and all that was sent"""
    words = f'send 1 sleep 200 send 1000 sleep 300 epipe data {MIB} eof epipe'
    with step_by_step(guest, back_end, 5103, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.shutdown(socket.SHUT_RD)
        sock.sendall(counting(MIB))
        sock.shutdown(socket.SHUT_WR)


def guest_stops_receiving(guest, back_end):
    """guest stops receiving: the host program gets EPIPE, and all that the guest sent"""
    words = 'send 1 shut 0 sleep 1000 send 100000'
    with step_by_step(guest, back_end, 5104, words) as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        time.sleep(0.5)
        with contextlib.suppress(BrokenPipeError):
            sock.sendall(bytes(MIB))
            check(False, 'the host program could send')
        check_equal(receive_all(sock), counting(100001)[1:], 'what the guest sent')


def guest_closes_with_data_queued(guest, back_end):
    """guest sends 250000 bytes and closes: a host that reads a second later gets them all"""
    for port in (5105, 5106):
        if port == 5105:
            with back_end.listen(port) as listener:
                guest.start('cmd', f'vsockcmd connect {HOST_CID} {port} send 250000')
                sock, _ = listener.accept()
        else:
            guest.start('cmd', f'vsockcmd accept {port} send 250000')
            sock = back_end.connect(port)
        with sock:
            check_equal(guest.finish('cmd'), (0, ''), 'guest')
            time.sleep(1)
            check_equal(receive_all(sock), counting(250000), 'what the guest sent')


def guest_resets(guest, back_end):
    """guest closes with data of the host unread, and the host has closed: nothing is left"""
    with step_by_step(guest, back_end, 5107, 'send 1 sleep 300') as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.sendall(bytes(100000))
        sock.close()
    with step_by_step(guest, back_end, 5108, 'send 1 sleep 300') as sock:
        check_equal(sock.recv(1), b'\0', 'first byte')
        sock.sendall(bytes(100000))
        check_ended(sock, 5)
    back_end.check_all_ended()


def half_closed_with_data_queued(guest, back_end):
    """1 MiB and half-close, read late, 1 MiB answered behind EOF: all ways at once (CH #8300)"""
    first, answer = f'bytes {MIB} wait 700', f'bytes {MIB} wait 700 after 1'
    loads = []
    for port, words, after in ((5110, first, True), (5111, answer, False)):
        with back_end.listen(port) as listener:
            guest.start(f'out{port}', f'vsockload connect {HOST_CID} {port} {words}')
            loads.append((f'out{port}', Load([listener.accept()[0]], MIB, wait=0.7, after=after)))
        port += 2
        guest.start(f'in{port}', f'vsockload accept {port} {words}')
        loads.append((f'in{port}', Load([back_end.connect(port)], MIB, wait=0.7, after=after)))
    for name, load in loads:
        check_equal(load.finish(20), (MIB, MIB), f'host, {name}')
        check_equal(guest.finish(name), (0, f'sent {MIB} received {MIB}\n'), f'guest, {name}')


def notify(guest, back_end):
    """connect, write, half-close, wait for EOF, 50 times: no wait in it (vhost-device #874)"""
    with back_end.listen(5115) as listener:
        guest.start('cmd', f'for i in $(seq 50); do vsockcmd connect {HOST_CID} 5115 send 20'
                           ' shut 1 eof || exit; done')
        start = time.monotonic()
        for number in range(50):
            with listener.accept()[0] as sock:
                sock.settimeout(10)
                check_equal(receive_all(sock), counting(20), f'message {number}')
        check_equal(guest.finish('cmd'), (0, ''), 'guest')
    seconds = time.monotonic() - start
    comment(f'{1000 * seconds / 50:.0f} ms each')
    check(seconds < 20, f'50 notifications took {seconds:.1f} s')


def answer_calls(listener, count):
    """Echo server for vsockcalls call; a thread that ends after so many calls."""
    def serve():
        for _ in range(count):
            with listener.accept()[0] as sock:
                sock.settimeout(20)
                sock.sendall(receive_all(sock))
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return thread


def same_port_again(guest, back_end):
    """200 connections from one port, each as soon as the one before is closed"""
    with back_end.listen(5116) as listener:
        thread = answer_calls(listener, 200)
        check_equal(guest.run(f'vsockcalls call {HOST_CID} 5116 200 7000', 30), (0, ''), 'guest')
        thread.join(10)
        check(not thread.is_alive(), 'the host has not seen all')


def refused_in_turn(guest, back_end):
    """1000 connects of the guest refused: descriptors as before (libkrun #116)"""
    guest.shell(f'vsockcalls refused {HOST_CID} 5117 10')
    descriptors = back_end.descriptors()
    start = time.monotonic()
    check_equal(guest.run(f'vsockcalls refused {HOST_CID} 5117 1000', 40), (0, ''), 'guest')
    comment(f'{time.monotonic() - start:.2f} ms each')
    back_end.check_all_ended()
    check_equal(back_end.descriptors(), descriptors, 'descriptors')


def host_refused_in_turn(_guest, back_end):
    """200 connects of host programs refused, each at once (libkrun #684)"""
    descriptors = back_end.descriptors()
    slowest = 0
    for _ in range(200):
        start = time.monotonic()
        with back_end.dial() as sock:
            sock.sendall(b'CONNECT 5118\n')
            check_equal(sock.recv(1), b'', 'answer')
        slowest = max(slowest, time.monotonic() - start)
    comment(f'slowest {1000 * slowest:.0f} ms')
    check(slowest < 1, f'one took {slowest:.1f} s')
    back_end.check_all_ended()
    check_equal(back_end.descriptors(), descriptors, 'descriptors')


CASES = (poll_host_half_closes, poll_host_closes, closed_with_data_queued, host_stops_receiving,
         guest_stops_receiving, guest_closes_with_data_queued, guest_resets,
         half_closed_with_data_queued, notify, same_port_again, refused_in_turn,
         host_refused_in_turn)
