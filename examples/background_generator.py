"""The example of the prefetch_generator package: a producer and a consumer of 0.1 s each overlap.

python examples/background_generator.py
"""

import time

# was: from prefetch_generator import BackgroundGenerator, background
from fastloader.compat.prefetch_generator import BackgroundGenerator, background

ITEMS = 10


def read_batches():
    for number in range(ITEMS):
        time.sleep(0.1)  # reading
        yield number


@background(max_prefetch=3)
def decorated_batches():
    yield from read_batches()


def consume(batches):
    begun = time.perf_counter()
    taken = []
    for batch in batches:
        time.sleep(0.1)  # training
        taken.append(batch)
    assert taken == list(range(ITEMS))
    return time.perf_counter() - begun


plain = consume(read_batches())
ahead = consume(BackgroundGenerator(read_batches()))
decorated = consume(decorated_batches())
ideal = 0.1 * (ITEMS + 1)
print(f"one after the other {plain:.2f} s")
print(f"BackgroundGenerator {ahead:.2f} s, @background {decorated:.2f} s")
print(f"ideal {ideal:.2f} s; BackgroundGenerator took {ahead / ideal:.2f} times that")
