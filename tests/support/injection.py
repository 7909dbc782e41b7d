"""Exceptions raised at a line of whatever Python code a call runs."""

import sys
from collections import Counter

from pliant.driver.pipeline import Compiler


class Injector:
    """Raises `error` at the line event number `at`; counts them if that is None. `at` can be a line
    too, with the number of one of its own events: those don't depend on what else runs."""

    def __init__(self, error=None, at=None):
        self.error, self.at = error, at
        self.count = 0
        self.first = {}  # the number of the first event of each line, and of the last
        self.last = {}
        self.times = Counter()  # events of each line
        self.where = ""  # it was raised
        self.compiling = False  # it was raised by code of a compilation
        self.lost = False  # Python dropped it

    def _event(self, frame, event, arg):
        if event == "line":
            line = (frame.f_code, frame.f_lineno)
            self.first.setdefault(line, self.count)
            self.last[line] = self.count
            self.times[line] += 1
            if self.at in (self.count, (*line, self.times[line])):
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.compiling = _is_compiling(frame)
                sys.settrace(None)
                self.count += 1
                raise self.error
            self.count += 1
        return self._event

    def call(self, function, *args):
        hook = sys.unraisablehook
        # Python itself drops exceptions of destructors and of callbacks of weak references.
        sys.unraisablehook = self._unraisable
        sys.settrace(self._event)
        try:
            return function(*args)
        finally:
            sys.settrace(None)
            sys.unraisablehook = hook

    def _unraisable(self, about):
        self.lost = self.lost or about.exc_value is self.error


def _is_compiling(frame):
    while frame is not None:
        if frame.f_code is Compiler.on_miss.__code__:
            return True
        frame = frame.f_back
    return False
