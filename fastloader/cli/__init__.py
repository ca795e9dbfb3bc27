"""The ``fastloader`` command: demo, doctor, pack, index, bench."""
