"""The ``fastloader`` command: demo, doctor, pack, bench."""
