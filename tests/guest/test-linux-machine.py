#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What happens to a Linux guest and its machine, seen from ringferry vsock: reboots, drivers that
go and come, kinds of memory, QEMU and back ends that leave.

RF_BIN is the program, RF_GUEST_PROGRAMS the directory of the guest's; RF_KERNEL=6.12 takes another
guest kernel.
"""
import socket
import sys
import time

import cases_memory
from guestlab import HOST_CID, BackEnd, Lab, Machine, Work, end_process, programs
from load import Pair
from streams import check_ended, crossing, receive_all
from tap import check, check_equal, comment, run_cases

DRIVER = '/sys/bus/virtio/drivers/vmw_vsock_virtio_transport'


def open_both(guest, back_end):
    """Two connections that stay open: the guest's, and the host's."""
    with back_end.listen(6002) as listener:
        guest.start('out', f'sleep 100 | socat - VSOCK-CONNECT:{HOST_CID}:6002')
        accepted, _ = listener.accept()
    guest.start('in', 'socat VSOCK-LISTEN:6003 EXEC:cat')
    connected = back_end.connect(6003)
    connected.sendall(b'x')
    check_equal(connected.recv(1), b'x', 'echo')
    return accepted, connected


def check_both_ended(socks):
    """The host programs' ends of both have ended.

    A reset guest looks like a paused one until its driver is back, so wait for that first.
    """
    for sock in socks:
        check_ended(sock)
        sock.close()


def reset(guest, back_end):
    """QEMU system_reset: connections end, after the reboot new ones work both ways"""
    socks = open_both(guest, back_end)
    guest.command('system_reset')
    guest.wait_ready()
    check_both_ended(socks)
    crossing(guest, back_end)


def reboot(guest, back_end):
    """reboot by the guest: connections end, after it new ones work both ways"""
    socks = open_both(guest, back_end)
    guest.start('reboot', 'reboot -f')
    guest.wait_ready()
    check_both_ended(socks)
    crossing(guest, back_end)


def reboot_in_transfer(guest, back_end):
    """system_reset in mid-transfer, three times: nothing of the old connections is left"""
    for _ in range(3):
        with back_end.listen(6004) as listener:
            guest.start('cmd', f'socat /dev/zero,ignoreeof VSOCK-CONNECT:{HOST_CID}:6004')
            sock, _ = listener.accept()
        check(sock.recv(100000), 'nothing received')
        guest.command('system_reset')
        receive_all(sock)
        sock.close()
        guest.wait_ready()
    crossing(guest, back_end)
    back_end.check_all_ended()


def rebind(guest, back_end):
    """driver unbound and bound again: connections end on both sides, new ones work"""
    socks = open_both(guest, back_end)
    guest.shell(f'cd {DRIVER}; d=$(basename virtio*); echo $d >unbind; sleep 0.3; echo $d >bind')
    check_both_ended(socks)
    guest.shell('killall sleep; true')
    status, output = guest.finish('out')
    check(status != 0, f'the guest program saw no error: {output}')
    crossing(guest, back_end)


def reload_module(guest, back_end):
    """driver's module removed and loaded again, three times: new connections work"""
    for _ in range(3):
        guest.shell('rmmod vmw_vsock_virtio_transport;'
                    ' insmod /modules/*vmw_vsock_virtio_transport.ko')
        crossing(guest, back_end)


def host_connects_without_driver(guest, back_end):
    """host connects while the driver is away: the connection ends, without OK"""
    guest.shell('rmmod vmw_vsock_virtio_transport')
    with back_end.dial() as sock:
        sock.sendall(b'CONNECT 6005\n')
        check_ended(sock)
    guest.shell('insmod /modules/*vmw_vsock_virtio_transport.ko')
    crossing(guest, back_end)


def leave_and_return():
    """QEMU quits, is killed, in mid-transfer: host programs see EOF; the next VM works"""
    with Work() as work, BackEnd(work) as back_end:
        for how in ('quit', 'kill', 'stay'):
            with Machine(work, back_end.socket, programs=programs()) as guest:
                crossing(guest, back_end)
                if how == 'stay':
                    break
                socks = open_both(guest, back_end)
                pair = Pair(guest, back_end, 6010, 'seconds 60').begin(seconds=60)
                pair.wait_received(1000000)
                if how == 'quit':
                    guest.quit()
                else:
                    guest.process.kill()
                check_both_ended(socks)
                pair.wait_ended()
        back_end.check_all_ended()
        check_equal(end_process(back_end.process), 0, 'exit status of the back end')


def back_end_killed():
    """back end killed under QEMU: the VM lives, its programs go on; a new pair of both works"""
    with Work() as work, Work() as other_work:
        with BackEnd(work) as back_end, Machine(work, back_end.socket,
                                                programs=programs()) as guest:
            socks = open_both(guest, back_end)
            guest.start('cmd', 'timeout 5 vsockcmd accept 6011 send 10000 eof')
            socks += (back_end.connect(6011),)
            check_equal(socks[2].recv(10000, socket.MSG_WAITALL)[:2], b'\0\1', 'first bytes')
            back_end.kill()
            check_both_ended(socks)
            start = time.monotonic()
            status, output = guest.run('timeout 10 socat - </dev/null'
                                       f' VSOCK-CONNECT:{HOST_CID}:6012')
            check(status != 0, 'the guest has connected to nobody')
            comment(f'connect: {output.strip().rpartition(":")[2] or status},'
                    f' {time.monotonic() - start:.1f} s')
            check(guest.finish('cmd')[0] != 0, 'the guest waits for EOF and does not time out')
            with BackEnd(work) as again:
                with Machine(other_work, again.socket) as other:
                    crossing(other, again)
                check_equal(guest.shell('echo lives'), 'lives\n', 'the first VM')


SHARED = (rebind, reload_module, host_connects_without_driver, reset, reboot, reboot_in_transfer)
OWN = (leave_and_return, back_end_killed, *cases_memory.CASES)


if __name__ == '__main__':
    with Lab() as LAB:
        def with_lab(case):
            """The case, given the shared guest."""
            def call():
                case(*LAB.get())
            call.__doc__ = case.__doc__
            call.__name__ = case.__name__
            return call
        CASES = [with_lab(case) for case in SHARED] + list(OWN)
        WANTED = [case for case in CASES if not sys.argv[1:] or case.__name__ in sys.argv[1:]]
        sys.exit(run_cases(WANTED, 180, after_failure=LAB.failed))
