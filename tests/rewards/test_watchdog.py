"""A time limit that always hits the call it was set for and nothing else."""

import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from lit_rlhf.rewards.watchdog import CallTimeoutError, call_with_timeout


def loop_for(seconds):
    """Keep busy in Python, where an exception can be raised."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def test_returns_what_the_call_returns():
    assert call_with_timeout(lambda: [1, None], 5.0, what="call") == [1, None]


def test_passes_on_what_the_call_raises():
    with pytest.raises(ZeroDivisionError):
        call_with_timeout(lambda: 1 / 0, 5.0, what="call")


def test_stops_a_loop_and_names_the_line():
    def sleeps_forever():
        while True:
            time.sleep(0.01)

    line = sleeps_forever.__code__.co_firstlineno
    start = time.perf_counter()
    with pytest.raises(
        CallTimeoutError, match=rf"^did not return within 0.2 s \(it was at .*:{line + 2}\)$|:{line + 1}"
    ):
        call_with_timeout(sleeps_forever, 0.2, what="call", file=__file__)
    assert 0.2 <= time.perf_counter() - start < 2


def test_waits_for_a_c_call_that_ends_before_the_second_limit():
    start = time.perf_counter()
    with pytest.raises(CallTimeoutError):
        call_with_timeout(lambda: time.sleep(0.4), 0.2, what="call")
    assert time.perf_counter() - start >= 0.4


def test_except_exception_does_not_swallow_it():
    def retries():
        while True:
            try:
                loop_for(0.05)
            except Exception:
                continue

    with pytest.raises(CallTimeoutError):
        call_with_timeout(retries, 0.2, what="call")


def test_a_call_that_swallows_it_is_still_late():
    def swallows():
        try:
            loop_for(5)
        except:  # noqa: E722
            return "done"

    with pytest.raises(CallTimeoutError):
        call_with_timeout(swallows, 0.2, what="call")


def test_leaves_no_thread_and_no_timer_behind():
    call_with_timeout(lambda: None, 0.01, what="call")
    time.sleep(1.6)  # past the limit and past the point where the process would be ended
    assert not [thread for thread in threading.enumerate() if thread.name == "reward-watchdog"]


@pytest.fixture
def fast_thread_switches():
    """Let the two threads meet at many more places than every 5 ms."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("fast_thread_switches")
def test_no_exception_strays_when_the_call_ends_right_at_the_limit():
    limit = 0.002
    outcomes = {"in time": 0, "late": 0}
    for attempt in range(600):
        duration = limit + (attempt % 60 - 30) * 1e-5
        try:
            call_with_timeout(lambda duration=duration: loop_for(duration), limit, what="call")
            outcomes["in time"] += 1
        except CallTimeoutError:
            outcomes["late"] += 1
        for _ in range(100):  # a stray exception would arrive here, outside of every handler
            pass
    assert sum(outcomes.values()) == 600
    assert min(outcomes.values()) > 20, outcomes  # both sides of the race were run


def run_script(body):
    """Run code in a process of its own."""
    script = "import time, re\nfrom lit_rlhf.rewards.watchdog import call_with_timeout\n" + textwrap.dedent(body)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, timeout=60, check=False
    )
    return result, time.perf_counter() - start


def test_a_sleep_in_c_ends_the_process_with_one_line():
    result, seconds = run_script(
        """
        print("output so far")
        call_with_timeout(lambda: time.sleep(100), 0.5, what="reward function 'f' (prompt ids 3, 4)", file="<string>")
        """
    )
    assert result.returncode == 1
    assert result.stdout == "output so far\n"
    assert result.stderr == (
        "reward function 'f' (prompt ids 3, 4) did not return within 1.5 s (it was at <string>:5) "
        "and cannot be interrupted there; ending the process\n"
    )
    assert seconds < 30


def test_a_c_call_that_keeps_the_interpreter_lock_ends_the_process_too():
    result, seconds = run_script(
        """
        backtracks = lambda: re.match(r"(a+)+$", "a" * 60 + "b")
        call_with_timeout(backtracks, 0.5, what="reward function 'f' (prompt ids 3, 4)")
        """
    )
    assert result.returncode == 1
    assert "in reward function 'f' (prompt ids 3, 4)" in result.stderr
    assert seconds < 30


def test_a_call_that_swallows_everything_for_ever_ends_the_process():
    result, _ = run_script(
        """
        def swallows():
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:
                    pass
        call_with_timeout(swallows, 0.3, what="reward function 'f' (prompt id 3)")
        """
    )
    assert result.returncode == 1
    assert "reward function 'f' (prompt id 3) did not return within 1.3 s" in result.stderr
