#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""What happens to a Linux guest and its machine, seen from ringferry vsock: reboots, drivers that
go and come, kinds of memory, QEMU that leaves.

RF_BIN is the program, RF_KERNEL=6.12 takes another guest kernel.
"""
import contextlib
import hashlib
import sys
import time

from guestlab import HOST_CID, BackEnd, Lab, Machine, Work, end_process, read_text
from streams import MIB, check_ended, receive_all, seeded
from tap import check, check_equal, comment, run_cases, wait_for

DATA = seeded(16 * MIB)
DRIVER = '/sys/bus/virtio/drivers/vmw_vsock_virtio_transport'


def crossing(guest, back_end):
    """New connections work in both directions, with 16 MiB each."""
    guest.start('cmd', 'socat -u VSOCK-LISTEN:6000 - | tee /tmp/16 | sha256sum')
    with back_end.connect(6000) as sock:
        sock.settimeout(60)
        sock.sendall(DATA)
    digest = hashlib.sha256(DATA).hexdigest()
    check_equal(guest.finish('cmd', 60)[1].split()[0], digest, 'SHA-256 of what the guest received')
    with back_end.listen(6001) as listener:
        guest.start('cmd', f'socat -u /tmp/16 VSOCK-CONNECT:{HOST_CID}:6001')
        with listener.accept()[0] as sock:
            check(receive_all(sock) == DATA, 'host received something else')
    check_equal(guest.finish('cmd'), (0, ''), 'guest')


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
    guest.shell('killall sleep')
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


@contextlib.contextmanager
def own_machine(**options):
    """A guest and a back end for one case."""
    with Work() as work, BackEnd(work) as back_end:
        with Machine(work, back_end.socket, **options) as guest:
            yield guest, back_end


def two_regions():
    """3 GiB of guest memory, which is two regions"""
    with own_machine(megabytes=3072) as (guest, back_end):
        crossing(guest, back_end)


def shared_file():
    """guest memory in a file with share=on"""
    with own_machine(memory='file,share=on') as (guest, back_end):
        crossing(guest, back_end)


def check_diagnosed(memory):
    """A guest whose memory is not shared is told of in one line that says what to do."""
    with own_machine(memory=memory) as (guest, back_end):
        def lines():
            return [line for line in (read_text(back_end.log) + read_text(guest.log)).splitlines()
                    if 'share=on' in line]
        guest.run(f'socat - VSOCK-CONNECT:{HOST_CID}:6006 </dev/null')
        wait_for(lines, 10, 'a line that names share=on')
        time.sleep(1)
        check_equal(len(lines()), 1, f'lines that name share=on, {lines()}')
        comment(lines()[0])
        check(back_end.alive(), 'the back end has ended')


def plain_memory():
    """plain guest memory (-m alone) is diagnosed in one line"""
    check_diagnosed('plain')


def private_memfd():
    """memory-backend-memfd,share=off is diagnosed in one line"""
    check_diagnosed('memfd,share=off')


def private_file():
    """memory-backend-file,share=off is diagnosed in one line"""
    check_diagnosed('file,share=off')


def leave_and_return():
    """QEMU quits, another takes its place at the same back end"""
    with Work() as work, BackEnd(work) as back_end:
        for how in ('quit', 'kill', 'stay'):
            with Machine(work, back_end.socket) as guest:
                crossing(guest, back_end)
                if how == 'stay':
                    break
                socks = open_both(guest, back_end)
                if how == 'quit':
                    guest.quit()
                else:
                    guest.process.kill()
                check_both_ended(socks)
        back_end.check_all_ended()
        check_equal(end_process(back_end.process), 0, 'exit status of the back end')


SHARED = (rebind, reload_module, host_connects_without_driver, reset, reboot, reboot_in_transfer)
OWN = (two_regions, shared_file, plain_memory, private_memfd, private_file, leave_and_return)


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
        sys.exit(run_cases(WANTED, 90, after_failure=LAB.failed))
