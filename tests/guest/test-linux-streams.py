#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Streams between a Linux guest with Debian's socat and host programs, through ringferry vsock.

RF_BIN is the program, RF_GUEST_PROGRAMS the directory of the guest's; RF_KERNEL=6.12 takes another
guest kernel; RF_SECONDS is how long the long transfer takes.
"""
import hashlib
import socket
import sys
import time

import cases_ends
import cases_load
from guestlab import HOST_CID, Lab, read_line
from streams import MIB, Exchange, echo_check, receive_all, seeded
from tap import check, check_equal, comment, run_cases, wait_for

LENGTH = 64 * MIB
DATA = seeded(LENGTH)
DATA_SHA = hashlib.sha256(DATA).hexdigest()


def guest_file(guest):
    """64 MiB of the guest's own in /tmp/data; their SHA-256."""
    return guest.shell('[ -e /tmp/data ] ||'
                       ' dd if=/dev/urandom of=/tmp/data bs=1M count=64 2>/dev/null;'
                       ' [ -e /tmp/sha ] || sha256sum </tmp/data | cut -d" " -f1 >/tmp/sha;'
                       ' cat /tmp/sha', 120).strip()


def begin_exchange(guest, back_end, who, port):
    """Start 64 MiB each way at once on a connection that @who asks for."""
    guest_file(guest)
    if who == 'guest':
        with back_end.listen(port) as listener:
            guest.start('cmd', f'socat -t10 - VSOCK-CONNECT:{HOST_CID}:{port} </tmp/data |'
                               ' sha256sum')
            sock, _ = listener.accept()
    else:
        guest.start('cmd', f'socat -t10 VSOCK-LISTEN:{port} - </tmp/data | sha256sum')
        sock = back_end.connect(port)
    sock.settimeout(120)
    return Exchange(sock, DATA)


def end_exchange(guest, exchange):
    """Both ends must have got what the other sent."""
    digest = exchange.finish()
    check_equal(exchange.received, LENGTH, 'bytes from the guest')
    check_equal(digest, guest_file(guest), 'SHA-256 of what the host received')
    _, output = guest.finish('cmd', 120)
    check_equal(output.split()[0], DATA_SHA, 'SHA-256 of what the guest received')


def timed_exchange(guest, back_end, who, port):
    """A whole exchange, its rate as a comment."""
    guest_file(guest)
    start = time.monotonic()
    end_exchange(guest, begin_exchange(guest, back_end, who, port))
    comment(f'{2 * LENGTH / MIB / (time.monotonic() - start):.0f} MiB/s, both directions together')


def guest_connects(guest, back_end):
    """guest connects: 64 MiB each way at once, SHA-256 equal"""
    timed_exchange(guest, back_end, 'guest', 5000)


def host_connects(guest, back_end):
    """host connects: 64 MiB each way at once, SHA-256 equal"""
    timed_exchange(guest, back_end, 'host', 5001)


def guest_half_closes(guest, back_end):
    """guest connects and half-closes: the host answers two seconds after EOF"""
    with back_end.listen(5002) as listener:
        guest.start('cmd', f'printf question | socat -t10 - VSOCK-CONNECT:{HOST_CID}:5002')
        with listener.accept()[0] as sock:
            check_equal(receive_all(sock), b'question', 'before EOF')
            time.sleep(2)
            sock.sendall(b'late answer')
    check_equal(guest.finish('cmd'), (0, 'late answer'), 'guest')


def host_half_closes(guest, back_end):
    """host connects and half-closes: the guest answers two seconds after EOF"""
    guest.start('cmd', "socat -t10 VSOCK-LISTEN:5003 SYSTEM:'cat >/tmp/q; sleep 2; cat /tmp/q'")
    with back_end.connect(5003) as sock:
        sock.sendall(b'question')
        sock.shutdown(socket.SHUT_WR)
        check_equal(receive_all(sock), b'question', 'answer')
    check_equal(guest.finish('cmd')[0], 0, 'socat in the guest')


def acceptor_host_half_closes(guest, back_end):
    """guest connects, the host half-closes: the guest sends two seconds after EOF"""
    with back_end.listen(5004) as listener:
        guest.start('cmd', f'(sleep 2; printf late) | socat -t10 - VSOCK-CONNECT:{HOST_CID}:5004')
        with listener.accept()[0] as sock:
            sock.sendall(b'hello')
            sock.shutdown(socket.SHUT_WR)
            check_equal(receive_all(sock), b'late', 'after EOF')
    check_equal(guest.finish('cmd'), (0, 'hello'), 'guest')


def acceptor_guest_half_closes(guest, back_end):
    """host connects, the guest half-closes: the host sends two seconds after EOF"""
    guest.start('cmd', 'printf hello | socat -t10 VSOCK-LISTEN:5005 -')
    with back_end.connect(5005) as sock:
        check_equal(receive_all(sock), b'hello', 'before EOF')
        time.sleep(2)
        sock.sendall(b'late')
    check_equal(guest.finish('cmd'), (0, 'late'), 'guest')


def guest_refused(guest, back_end):
    """guest connects where nobody listens: ECONNRESET at once"""
    stale = back_end.listen(5007)
    stale.close()
    for port, what in ((5006, 'no socket file'), (5007, 'a socket file nobody listens on')):
        status, output = guest.run(f'socat - VSOCK-CONNECT:{HOST_CID}:{port} </dev/null')
        check(status != 0, f'{what}: connected')
        check('Connection reset by peer' in output, f'{what}: {output}')


def host_refused(_guest, back_end):
    """host connects where nobody listens: closed at once, without OK"""
    refused = back_end.counters()['refused']
    with back_end.dial() as sock:
        sock.sendall(b'CONNECT 5008\n')
        check_equal(read_line(sock), b'', 'reply')
    check_equal(back_end.counters()['refused'], refused + 1, 'refusals, which are no timeouts')


def fifty_at_once(guest, back_end):
    """50 connections of the guest at once against a backlog of 5: all are served"""
    before = back_end.counters()['guest_connects']
    with back_end.listen(5009, backlog=5) as listener:
        guest.start('cmd', 'for i in $(seq 50); do (echo "number $i" |'
                           f' socat -t60 - VSOCK-CONNECT:{HOST_CID}:5009 >/tmp/echo.$i 2>&1) &'
                           ' done; wait')
        # The backlog holds 6; later all 50 are open at the same time.
        wait_for(lambda: back_end.counters()['guest_connects'] >= before + 12, 20,
                 'more connections than the backlog holds')
        socks = [listener.accept()[0] for _ in range(50)]
        for sock in socks:
            sock.settimeout(20)
        for sock in socks:
            sock.sendall(receive_all(sock))
            sock.close()
    guest.finish('cmd', 40)
    wrong = guest.shell('for i in $(seq 50); do [ "$(cat /tmp/echo.$i)" = "number $i" ] ||'
                        ' echo "$i: $(cat /tmp/echo.$i)"; done; rm /tmp/echo.*')
    check_equal(wrong, '', 'connections without their own answer')
    back_end.check_all_ended()


def stop_and_continue(guest, back_end, who, port):
    """Stop the guest three times in mid-transfer."""
    exchange = begin_exchange(guest, back_end, who, port)
    for part in (1, 2, 3):
        exchange.wait_received(part * LENGTH // 8)
        guest.command('stop')
        time.sleep(1)
        check(exchange.received < LENGTH, 'stopped too late: all had arrived')
        guest.command('cont')
    end_exchange(guest, exchange)


def stop_guest_connected(guest, back_end):
    """QEMU stop and cont in mid-transfer, guest connected: nothing lost either way"""
    stop_and_continue(guest, back_end, 'guest', 5010)


def stop_host_connected(guest, back_end):
    """QEMU stop and cont in mid-transfer, host connected: nothing lost either way"""
    stop_and_continue(guest, back_end, 'host', 5011)


def idle(guest, back_end):
    """idle with two connections open: the back end does not wake up"""
    with back_end.listen(5012) as listener:
        guest.start('cmd', f'sleep 20 | socat - VSOCK-CONNECT:{HOST_CID}:5012')
        accepted, _ = listener.accept()
    guest.start('echo', 'socat VSOCK-LISTEN:5013 EXEC:cat')
    connected = back_end.connect(5013)
    connected.sendall(b'x')
    check_equal(connected.recv(1), b'x', 'echo')
    # Longer than the back end's one look at a new guest's memory takes.
    time.sleep(1.5)
    switches = back_end.switches()
    time.sleep(2)
    check_equal(back_end.switches(), switches, 'voluntary context switches after 2 s')
    first = back_end.counters()
    time.sleep(2)
    second = back_end.counters()
    # The signal that asks for the counters is one wake-up itself, and kicks are the guest's.
    grown = {name: second[name] - first[name] for name in ('loop_wakeups', 'vu_kicks')}
    check_equal(grown['loop_wakeups'] - grown['vu_kicks'], 1,
                f'loop wake-ups that no kick asked for, of {grown}')
    accepted.close()
    connected.close()
    guest.shell('killall sleep socat; true')


def connect_line_forms(guest, back_end):
    """CONNECT in pieces, lower case, with CRLF, with data right behind it"""
    guest.shell('socat VSOCK-LISTEN:5014,fork,reuseaddr EXEC:cat </dev/null >/dev/null 2>&1 &')
    back_end.connect(5014).close()
    forms = (('upper case', [b'CONNECT 5014\n']),
             ('lower case', [b'connect 5014\n']),
             ('mixed case', [b'CoNnEcT 5014\n']),
             ('CRLF', [b'CONNECT 5014\r\n']),
             ('in two pieces', [b'CONN', b'ECT 5014\n']),
             ('byte by byte', [bytes([byte]) for byte in b'CONNECT 5014\n']),
             ('CR and LF apart', [b'CONNECT 5014\r', b'\n']),
             ('data behind it', [b'CONNECT 5014\nearly ']),
             ('data behind CRLF', [b'CONNECT 5014\r\nearly ']),
             ('a lot of data behind it', [b'connect 5014\n' + b'early ' * 20000]))
    for name, pieces in forms:
        with back_end.dial() as sock:
            for piece in pieces:
                sock.sendall(piece)
                time.sleep(0.02 if len(pieces) > 1 else 0)
            check_equal(read_line(sock), b'OK 5014\n', name)
            sock.sendall(b'data')
            sock.shutdown(socket.SHUT_WR)
            early = b''.join(pieces).partition(b'\n')[2]
            check(receive_all(sock) == early + b'data', f'{name}: echo differs')
    guest.shell('killall socat')


def host_stops_reading(guest, back_end):
    """host program stops reading: what it sends still arrives, the guest gets EPIPE"""
    with back_end.listen(5015) as listener:
        guest.start('cmd', '(sleep 1; echo a; sleep 1; echo b; sleep 1; echo c) |'
                           f' socat -t5 - VSOCK-CONNECT:{HOST_CID}:5015')
        with listener.accept()[0] as sock:
            sock.shutdown(socket.SHUT_RD)
            time.sleep(1.5)
            sock.sendall(b'last words')
            status, output = guest.finish('cmd')
    check(status != 0 and 'Broken pipe' in output, f'no EPIPE: status {status}, {output!r}')
    check(output.startswith('last words'), f'guest got {output!r}')


def guest_killed(guest, back_end):
    """guest's program is killed in mid-transfer: the host program's connection ends"""
    with back_end.listen(5016) as listener:
        guest.start('cmd', f'socat -u /dev/zero VSOCK-CONNECT:{HOST_CID}:5016')
        sock, _ = listener.accept()
    check(sock.recv(1000), 'nothing received')
    guest.shell('killall -9 socat')
    sock.settimeout(10)
    receive_all(sock)
    sock.close()


def host_killed(guest, back_end):
    """host program closes with data under way both ways: the guest's connection ends"""
    guest.start('cmd', 'socat -t1 VSOCK-LISTEN:5017 EXEC:cat')
    sock = back_end.connect(5017)
    sock.sendall(DATA[:MIB // 2])
    sock.close()
    guest.finish('cmd')


def many_in_turn(guest, back_end):
    """200 connections of host programs, one after the other, each with an echo"""
    guest.shell('socat VSOCK-LISTEN:5018,fork EXEC:cat </dev/null >/dev/null 2>&1 &')
    for number in range(200):
        echo_check(back_end.connect(5018), b'number %d' % number)
    guest.shell('killall socat')
    back_end.check_all_ended()


CASES = (guest_connects, host_connects, guest_half_closes, host_half_closes,
         acceptor_host_half_closes, acceptor_guest_half_closes, guest_refused, host_refused,
         fifty_at_once, stop_guest_connected, stop_host_connected, idle, connect_line_forms,
         host_stops_reading, guest_killed, host_killed, many_in_turn,
         *cases_ends.CASES, *cases_load.CASES)


if __name__ == '__main__':
    with Lab() as LAB:
        WANTED = [case for case in CASES if not sys.argv[1:] or case.__name__ in sys.argv[1:]]
        sys.exit(run_cases(WANTED, 180, LAB.get, LAB.failed))
