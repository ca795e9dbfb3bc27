"""Ctrl-C at a place of one's choice."""

import contextlib
import sys


def interrupts(monkeypatch, kind, name, when):
    """Ctrl-C right "before" or right "behind" a call of ``kind.name``: one for each item that is put
    into what this returns."""
    real = getattr(kind, name)
    due = []

    def call(*args, **named):
        if when == "before" and due:
            raise KeyboardInterrupt(due.pop())
        result = real(*args, **named)
        if when == "behind" and due:
            raise KeyboardInterrupt(due.pop())
        return result

    monkeypatch.setattr(kind, name, call)
    return due


@contextlib.contextmanager
def interrupt_at_line(functions, number):
    """Ctrl-C before the line of this number, among all that run in these functions. The context says
    whether it came."""
    codes = {function.__code__ for function in functions}
    came = []
    lines = 0

    def trace(frame, event, _argument):
        nonlocal lines
        if frame.f_code not in codes:
            return None
        if event == "line":
            lines += 1
            if lines > number and not came:
                came.append(True)
                raise KeyboardInterrupt(number)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield came
    finally:
        sys.settrace(before)
