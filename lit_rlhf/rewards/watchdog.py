"""A time limit on a call in this thread, kept by another thread and without signals.

Signals belong to the main program (Lightning, SLURM) and to math-verify, which sets its own alarms inside a reward.
"""

import ctypes
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import TypeVar

from lit_rlhf.rewards.wording import describe_place

T = TypeVar("T")

STDERR_FD = 2

MIN_GRACE_S = 1.0
"""Least time an interrupted call gets to end; with a limit of milliseconds a busy machine would need it."""


class CallTimeoutError(Exception):
    """A watched call has overrun its limit; the message says how long that was and at which line the call stood.

    Raised once the call has come to an end, so nothing of it is still running.
    """


class _Expired(BaseException):
    """Sent into the watched thread. Not an ``Exception``: ``except Exception: continue`` must not swallow it."""


class _Watch:
    """Decides, for one call, whether the call or the limit came first, and lets only one of them win.

    ``verdict`` is taken once and never given back: by the watched thread when its call has ended, or by the watchdog
    when the time is up. Only a watchdog that took it sends the exception, so after a call that ended in time none can
    arrive. After one that did not, the watched thread waits for ``sent`` and then takes back an exception that is
    still on its way.
    """

    def __init__(self, timeout_s: float, what: str, file: str) -> None:
        self.timeout_s = timeout_s
        self.grace_s = max(timeout_s, MIN_GRACE_S)
        self.what = what
        self.file = file
        self.place = ""
        self.watched_id = threading.get_ident()
        self.verdict = threading.Lock()
        self.sent = threading.Lock()
        self.sent.acquire()
        self.ended = threading.Event()

    def message(self, limit_s: float) -> str:
        """What happened, after how long, and where."""
        return f"did not return within {limit_s:g} s{self.place}"

    def watch(self) -> None:
        """Body of the watchdog thread."""
        if self.ended.wait(self.timeout_s) or not self.verdict.acquire(blocking=False):
            return
        self.place = self._find_place()
        _send(self.watched_id, ctypes.py_object(_Expired))
        self.sent.release()
        if not self.ended.wait(self.grace_s):
            self._end_process()

    def _find_place(self) -> str:
        frame: FrameType | None = sys._current_frames().get(self.watched_id)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return f" (it was at {describe_place(self.file, frame.f_lineno)})"
            frame = frame.f_back
        return ""

    def _end_process(self) -> None:
        self.place = self._find_place()
        story = self.message(self.timeout_s + self.grace_s)
        line = f"{self.what} {story} and cannot be interrupted there; ending the process\n"
        # Not print: the stuck thread may hold the lock of sys.stderr.
        os.write(STDERR_FD, line.encode(errors="replace"))
        sys.stdout.flush()
        os._exit(1)


def _send(thread_id: int, exception: "ctypes.py_object[type[BaseException]]") -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread_id), exception)


def call_with_timeout(call: Callable[[], T], timeout_s: float, *, what: str, file: str = "") -> T:
    """Call a function in this thread and stop it when it takes too long.

    After ``timeout_s`` an exception is raised inside the call. Where Python cannot raise one (inside a C function), it
    arrives when the C function returns; after a second ``timeout_s`` (at least 1 s) without that, the process ends
    with status 1 and the message on stderr. A C function that also keeps the interpreter lock (a regular expression
    that backtracks for hours) stops the watchdog thread too; then `faulthandler`'s own timer, which needs no lock,
    ends the process half a ``timeout_s`` later; its stack dump shows ``what`` as the name of a frame. (There is one
    such timer in a process; one that somebody else has set is lost.)

    Args:
        call: A function without arguments.
        timeout_s: Seconds; the limit of the call.
        what: Who is called, for the message when the process ends: ``"reward function 'f' (prompt id 3)"``.
        file: Source file whose current line the message names; "" names none.

    Returns:
        What the call returns.

    Raises:
        CallTimeoutError: The call took longer than ``timeout_s``, whatever it returned or raised in the end.

    >>> call_with_timeout(lambda: 1 + 1, 5.0, what="an addition")
    2
    """
    watch = _Watch(timeout_s, what, file)
    faulthandler.dump_traceback_later(timeout_s + 1.5 * watch.grace_s, exit=True, file=STDERR_FD)
    try:
        threading.Thread(target=watch.watch, name="reward-watchdog", daemon=True).start()
        try:
            return _named_frame(what)(call)
        finally:
            # An exception on its way may arrive at any line up to the end of this block, and then leaves it for the
            # handler below; it is sent at most once, so the handler itself is safe.
            if not watch.verdict.acquire(blocking=False):
                watch.sent.acquire()
                _send(watch.watched_id, ctypes.py_object())  # NULL takes back one that has not arrived yet
                raise CallTimeoutError(watch.message(timeout_s))
    except _Expired:
        raise CallTimeoutError(watch.message(timeout_s)) from None
    finally:
        watch.ended.set()
        faulthandler.cancel_dump_traceback_later()


def _run(call: Callable[[], T]) -> T:
    return call()


def _named_frame(name: str) -> Callable[[Callable[[], T]], T]:
    """A function that only calls its argument and has ``name`` in stack dumps."""
    code: CodeType = _run.__code__.replace(co_name=name)
    return FunctionType(code, globals())
