"""num_workers="auto" for a loop that has two speeds in turn: it settles."""

import random

import pytest

from fastloader._core.observation.statistics import Statistics
from fastloader._core.observation.tuning import DepthRule, ThreadTuner

BATCH, AHEAD = 32, 3


class Pool:
    """Decode threads before a store of a few batches, in a time of the test's own."""

    def __init__(self, processors, decode, read):
        self.processors = processors
        self.decode, self.read = decode, read  # seconds for a picture
        self.threads = processors
        self.pictures = 0.0
        self.ready = 0.0  # batches

    def cpu_seconds(self):
        return self.pictures * self.decode

    def set_threads(self, threads):
        self.threads = threads

    def times(self):
        done = self.pictures
        return {"pictures": done, "read": done * self.read, "decode": done * self.decode}

    def rate(self):
        """Batches a second."""
        by_thread = self.threads / (self.decode + self.read)
        return min(by_thread, self.processors / self.decode) / BATCH

    def work(self, seconds):
        made = min(seconds * self.rate(), AHEAD - self.ready)
        self.ready += made
        self.pictures += made * BATCH

    def take(self):
        """Returns how long one waits for a batch."""
        wait = max(0.0, 1 - self.ready) / self.rate()
        self.work(wait)
        self.ready -= 1
        return wait


def changes(pool, step_s, steps=2000):
    """(step, threads) whenever another number of threads was chosen."""
    counted, tuner = Statistics(), ThreadTuner(pool.processors)
    tuner.filling(pool.processors, counted, pool)
    found, threads = [], pool.threads
    for step in range(steps):
        counted.wait_s += pool.take()
        tuner.taken(counted, pool)
        if pool.threads != threads:
            threads = pool.threads
            found.append((step, threads))
        counted.step_s += step_s(step)
        counted.steps += 1
        pool.work(step_s(step))
    return found


def alternating(one, other, period):
    return lambda step: other if step // period % 2 else one


@pytest.mark.parametrize("period", [20, 30])
def test_two_speeds_in_turn_change_little(period):
    worst = []
    for seed in range(100):
        draws = random.Random(seed)
        processors = draws.choice([2, 4, 8, 16, 64])
        decode = 10 ** draws.uniform(-3, -1.7)
        read = draws.choice([0, decode * 10 ** draws.uniform(-1, 1)])
        batch_s = BATCH * decode / processors  # with all threads
        one, other = (batch_s * 10 ** draws.uniform(-0.5, 1.7) for _ in range(2))
        found = changes(Pool(processors, decode, read), alternating(one, other, period))
        late = [change for change in found if change[0] >= 200]
        worst.append((len(late), seed, f"{one:.3f} {other:.3f}", late))
    assert max(worst)[0] <= 3, max(worst)


def test_a_loop_that_becomes_slower_than_ever_is_fitted_again():
    """Threads are given back, also where a hungry loop has had them all back before."""
    fast = BATCH * 0.01 / 16 * 1.1

    def step_s(step):
        if step < 500:
            return 2 * fast if step < 100 else fast
        return 20 * fast

    found = changes(Pool(16, 0.01, 0), step_s)
    assert any(step < 500 and threads < 16 for step, threads in found)  # given back,
    assert any(step < 500 and threads == 16 for step, threads in found)  # and asked for again
    assert found[-1][0] < 700 and found[-1][1] < 4


@pytest.mark.parametrize("period", [1, 2, 5, 20, 60])
def test_the_depth_of_two_speeds_in_turn_changes_three_times_at_most(period):
    rule, deepened = DepthRule(3), []
    for step in range(2000):
        ready = rule.depth if step // period % 2 else 0
        if rule.note_ready(ready) and rule.deepen(room=100):
            deepened.append(rule.depth)
    assert deepened == [6, 12, 16][: len(deepened)]
