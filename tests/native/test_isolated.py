"""Calls that can't be interrupted, and locks that are free afterwards."""

import signal
import threading
import time

import pytest

from pliant._native import locked, uninterrupted


def test_the_lock_is_held_meanwhile_and_free_afterwards():
    lock = threading.Lock()
    assert locked(lock, lambda *args: (lock.locked(), args), 1, 2) == (True, (1, 2))
    assert not lock.locked()


def test_the_lock_is_free_after_an_exception():
    lock = threading.Lock()
    with pytest.raises(ZeroDivisionError):
        locked(lock, lambda: 1 / 0)
    assert not lock.locked()


def test_wrong_arguments():
    with pytest.raises(TypeError):
        locked(threading.Lock())
    with pytest.raises(TypeError):
        uninterrupted()


def test_results_and_exceptions_come_from_the_other_thread():
    assert uninterrupted(lambda *args: (threading.get_ident(), args), 1)[1] == (1,)
    assert uninterrupted(threading.get_ident) != threading.get_ident()
    with pytest.raises(KeyError, match="missing") as caught:
        uninterrupted({}.__getitem__, "missing")
    assert caught.type is KeyError


def test_calls_from_within_stay_in_the_thread():
    lock = threading.RLock()

    def outer():
        with lock:
            return uninterrupted(inner), threading.get_ident()

    def inner():
        with lock:
            return threading.get_ident()

    first, second = uninterrupted(outer)
    assert first == second


def test_signals_are_raised_after_the_function():
    done = []

    def slow():
        for step in range(20):
            time.sleep(0.01)
            done.append(step)

    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            uninterrupted(slow)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGALRM, old)
    assert len(done) == 20
