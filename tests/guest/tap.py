# SPDX-License-Identifier: BSD-3-Clause
"""Test cases printed as TAP, each bounded in time."""
import signal
import sys
import time
import traceback


class Failure(Exception):
    """A case did not see what it wants; its text says what."""


class Skip(Exception):
    """A case cannot run on this machine; its text says why."""


class TimeUp(BaseException):
    """A case took too long. Not an Exception, so that no clean-up in between takes it for one."""


def _on_alarm(_signal, _frame):
    raise TimeUp


def _on_terminate(_signal, _frame):
    sys.exit(1)


def check(condition, text):
    """Fail the case unless @condition holds."""
    if not condition:
        raise Failure(text)


def check_equal(seen, wanted, what):
    """Fail the case unless both are equal."""
    if seen != wanted:
        raise Failure(f'{what}: {seen!r}, wanted {wanted!r}')


def wait_for(condition, seconds, what):
    """Ask @condition until it holds; what it returned then."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f'{what}: not within {seconds} s')
        time.sleep(0.02)


def comment(text):
    """Print lines that a TAP reader passes over."""
    for line in text.splitlines():
        print('#', line, flush=True)


def run_case(number, function, seconds, arguments):
    """Run one case and print its line. Return: did it fail?"""
    name = f'{number} - {function.__doc__.splitlines()[0].rstrip(".")}'
    start = time.monotonic()
    signal.alarm(seconds)
    try:
        function(*arguments)
        signal.alarm(0)
    except Skip as skip:
        signal.alarm(0)
        print(f'ok {name} # SKIP {skip}', flush=True)
        return False
    except TimeUp:
        comment(f'took longer than {seconds} s')
    except Failure as failure:
        signal.alarm(0)
        comment(str(failure))
    except Exception:  # pylint: disable=broad-except
        signal.alarm(0)
        comment(traceback.format_exc())
    else:
        comment(f'{time.monotonic() - start:.1f} s')
        print(f'ok {name}', flush=True)
        return False
    print(f'not ok {name}', flush=True)
    return True


def run_cases(cases, seconds=60, arguments=lambda: (), after_failure=lambda: None):
    """Run every case of a program. Return: exit status.

    @cases are functions whose first docstring line is the name; @arguments gives what each is
    called with, and may raise Failure or Skip; @after_failure prints what helps, and makes the next
    case start afresh.
    """
    signal.signal(signal.SIGALRM, _on_alarm)
    signal.signal(signal.SIGTERM, _on_terminate)
    print(f'1..{len(cases)}', flush=True)
    failed = 0
    for number, case in enumerate(cases, 1):
        def call(case=case):
            case(*arguments())
        call.__doc__ = case.__doc__
        if run_case(number, call, getattr(case, 'seconds', seconds), ()):
            failed += 1
            after_failure()
    return 1 if failed else 0
