"""Ctrl-C at a place of one's choice."""


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
