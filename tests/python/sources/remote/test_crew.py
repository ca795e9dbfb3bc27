"""Which actor is asked for what, and what becomes of it when the actor dies, in orders that no cluster
would keep: the actors are stand-ins, which answer when the test says so."""

import gc
import pickle
import weakref

import pytest

ray = pytest.importorskip("ray")

from ray.exceptions import RayTaskError  # noqa: E402
from ray_stand_ins import answered_in_turn, pictures, ready  # noqa: E402
from torch._utils import ExceptionWrapper  # noqa: E402
from torch.utils.data._utils.worker import _ResumeIteration  # noqa: E402

from fastloader import Error  # noqa: E402
from fastloader._core.sources.remote import crew  # noqa: E402
from fastloader._core.sources.remote.actor import Setup  # noqa: E402


def test_a_worker_has_its_actor(made):
    ours, pool, (first, second) = made()
    for number, worker in enumerate([first, second, first, second]):
        ours.ask(worker, (number, [number]))
    assert ready(ours) == [] and not pool.handles[0].made()
    for handle in pool.handles:
        handle.come_up()
    assert ready(ours) == []
    assert [[call.index for call in handle.made()] for handle in pool.handles] == [
        [[0], [2]],
        [[1], [3]],
    ]
    pool.handles[1].made()[0].answers("one")
    assert ready(ours) == [(1, "one")]


def test_the_actor_that_has_least_to_do_makes_the_next_pictures(made):
    ours, pool, (first, second) = made(pictures())
    slow, quick = pool.handles
    slow.come_up()
    quick.come_up()
    for number in range(4):
        ours.ask([first, second][number % 2], (number, [number]))
    ready(ours)
    assert len(slow.made()) == len(quick.made()) == 2
    for number in range(4, 9):
        quick.made()[0].answers(number)
        ready(ours)
        ours.ask(first, (number, [number]))
    assert [call.index for call in slow.made()] == [[0], [1]]
    assert len(quick.made()) == 2


@pytest.mark.parametrize("answered", [0, 1])
def test_what_died_with_an_actor_is_asked_for_again_from_its_state(made, answered):
    ours, pool, (worker,) = made(count=1, prefetch=3)
    pool.handles[0].come_up()
    for number in range(3):
        ours.ask(worker, (number, [number]))
    ready(ours)
    for number in range(answered):
        pool.handles[0].made()[0].answers(number, state=b"behind %d" % number)
    assert len(ready(ours)) == answered
    pool.handles[0].die()
    assert ready(ours) == []
    _, other = pool.handles
    other.come_up()
    assert ready(ours) == []
    (beginning,) = other.began()
    assert beginning.state == (b"behind 0" if answered else None)
    assert [call.index for call in other.made()] == [[answered]]
    assert (pool.counts.replaced, pool.counts.remade) == (1, 3 - answered)
    assert answered_in_turn(ours, other) == [(n, [n]) for n in range(answered, 3)]


def test_an_answer_that_came_before_an_earlier_one_is_not_delivered_twice(made):
    """The later batch is made again, because the generators go on from there."""
    ours, pool, (worker,) = made(count=1, prefetch=3)
    pool.handles[0].come_up()
    for number in range(3):
        ours.ask(worker, (number, [number]))
    ready(ours)
    pool.handles[0].made()[1].answers("one")
    assert ready(ours) == [(1, "one")]
    pool.handles[0].die()
    ready(ours)
    pool.handles[1].come_up()
    ready(ours)
    assert answered_in_turn(ours, pool.handles[1]) == [(0, [0]), (2, [2])]
    assert [call.index for call in pool.handles[1].calls if call.name == "make"] == [[0], [1], [2]]


def test_an_iterable_dataset_is_read_again(made):
    ours, pool, (worker,) = made(count=1, kind=1)
    pool.handles[0].come_up()
    ready(ours)
    for number in range(3):
        ours.ask(worker, (number, [None, None]))
        pool.handles[0].made()[0].answers(number)
        ready(ours)
    ours.ask(worker, (3, [None]))
    pool.handles[0].die()
    ready(ours)
    pool.handles[1].come_up()
    ready(ours)
    (beginning,) = pool.handles[1].began()
    assert beginning.state is None and beginning.resumed is None
    assert [(pickle.loads(message), times) for message, times in beginning.again] == [
        ([None, None], 3)
    ]


def test_an_epoch_of_persistent_workers_is_read_again_from_its_beginning(made):
    ours, pool, (worker,) = made(count=1, kind=1)
    handle = pool.handles[0]
    handle.come_up()
    ready(ours)
    ours.ask(worker, (0, [None]))
    handle.made()[0].answers(0)
    ready(ours)
    resume = _ResumeIteration(None)
    ours.ask(worker, resume)
    handle.calls[-1].answers(state=b"before the epoch")
    assert ready(ours) == [(resume, None)]
    ours.ask(worker, (0, [None]))
    handle.die()
    ready(ours)
    pool.handles[1].come_up()
    ready(ours)
    (beginning,) = pool.handles[1].began()
    assert beginning.state == b"before the epoch" and not beginning.again
    assert type(pickle.loads(beginning.resumed)) is _ResumeIteration


def test_what_the_epoch_before_had_under_way_is_not_of_the_next_one(made):
    ours, pool, (worker,) = made(pictures(), count=1)
    handle = pool.handles[0]
    handle.come_up()
    ours.ask(worker, (0, [0]))
    ours.ask(worker, (1, [1]))
    ours.ask(worker, (2, [2]))  # it waits, because the actor has two to do
    ready(ours)
    before = handle.made()
    assert [call.index for call in before] == [[0], [1]]
    resume = _ResumeIteration(None)
    ours.ask(worker, resume)
    ours.ask(worker, (0, [7]))
    for call in before:
        call.answers("of the epoch before")
    assert ready(ours) == [(resume, None)]
    assert [call.index for call in handle.made()] == [[7]]
    handle.made()[0].answers("of this one")
    assert ready(ours) == [(0, "of this one")]


@pytest.mark.parametrize("what", ["numbers", "pictures", "a stream"])
def test_a_batch_that_nothing_survives_is_an_error(made, what):
    dataset = pictures() if what == "pictures" else None
    ours, pool, (worker,) = made(dataset, count=1, kind=int(what == "a stream"))
    for number in (4, 5):
        ours.ask(worker, (number, [number]))
    got = []
    for death in range(3):
        pool.handles[death].come_up(f"node {death}")
        got += ready(ours)
        pool.handles[death].die()
        got += ready(ours)
    (number, error), *others = got
    assert number == 4 and type(error) is ExceptionWrapper
    with pytest.raises(Error, match=r"3 Ray actors died(.|\n)*node 2"):
        error.reraise()
    # A stream cannot go on behind a batch that nobody can make.
    assert [number for number, _ in others] == ([5] if what == "a stream" else [])
    pool.handles[3].come_up()
    assert ready(ours) == []
    assert [call.index for call in pool.handles[3].made()] == ([] if others else [[5]])
    if others:
        ours.ask(worker, (6, [6]))
        assert [number for number, _ in ready(ours)] == [6]


@pytest.mark.parametrize("what", [None, pictures()], ids=["numbers", "pictures"])
def test_a_call_that_fails_is_an_error_and_no_death(made, what):
    ours, pool, (worker,) = made(what, count=1)
    handle = pool.handles[0]
    handle.come_up()
    for number in range(3):
        ours.ask(worker, (number, [number]))
    ready(ours)
    for number in range(3):
        handle.made()[0].promise.set_exception(RayTaskError("make", "no", KeyError("no")))
        ((got, error),) = ready(ours)
        assert got == number and "no" in error.exc_msg
    assert not pool.counts.replaced and not pool._all - set(ours._actors)


def test_deaths_at_different_batches_are_no_error(made):
    ours, pool, (worker,) = made(count=1, prefetch=5)
    for number in range(5):
        ours.ask(worker, (number, [number]))
    for number in range(4):
        pool.handles[number].come_up()
        assert ready(ours) == []
        pool.handles[number].made()[0].answers(number)
        assert ready(ours) == [(number, number)]
        pool.handles[number].die()
        assert ready(ours) == []
    assert pool.counts.replaced == 4


def test_actors_that_come_up_in_the_end_are_no_error(made):
    ours, pool, (worker,) = made(count=1)
    ours.ask(worker, (0, [0]))
    for number in range(5):
        if number % 2:
            pool.handles[number].come_up()
            ready(ours)
        pool.handles[number].die()
        assert ready(ours) == []
    assert len(pool.handles) == 6


@pytest.mark.parametrize("dataset", [None, pictures()], ids=["a worker's", "anyone's"])
def test_what_an_actor_died_of_is_found_out(made, dataset):
    """An actor may die of a batch before the answer to an earlier one has left it. That one is not to
    blame: asked for alone, it comes."""
    ours, pool, (worker,) = made(dataset, count=1, prefetch=3)

    def died(number):
        pool.handles[number].die()
        assert ready(ours) == []
        pool.handles[number + 1].come_up()
        assert ready(ours) == []
        return [call.index for call in pool.handles[number + 1].made()]

    pool.handles[0].come_up()
    for number in range(3):
        ours.ask(worker, (number, [number]))
    assert ready(ours) == [] and len(pool.handles[0].made()) == 3
    assert died(0) == [[0]]
    pool.handles[1].made()[0].answers("zero")
    assert ready(ours) == [(0, "zero")]
    assert [call.index for call in pool.handles[1].made()] == [[1], [2]]
    assert died(1) == [[1]]
    assert died(2) == [[1]]
    pool.handles[3].die()
    ((number, error),) = ready(ours)
    assert number == 1
    with pytest.raises(Error, match="3 Ray actors died"):
        error.reraise()
    pool.handles[4].come_up()
    ready(ours)
    ours.ask(worker, (3, [3]))
    assert [call.index for call in pool.handles[4].made()] == [[2], [3]]


@pytest.mark.parametrize("answer", ["before the end", "behind the end", "never"])
def test_a_crew_that_has_ended_holds_no_actor(made, monkeypatch, answer):
    """A loader that is dropped ends its actors at once, and not when garbage is collected."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cancel", lambda reference: None)
    ours, pool, (worker,) = made(count=1)
    pool.handles[0].come_up()
    ours.ask(worker, (0, [0]))
    assert ready(ours) == []
    (call,) = pool.handles[0].made()
    gc.disable()
    try:
        if answer == "before the end":
            call.answers("a batch that nobody takes")
        ours.end(worker)
        if answer == "behind the end":
            call.answers("a batch that nobody waits for")
        watched = weakref.ref(pool._idle[0])
        pool.handles[0].calls.clear()
        del ours, pool, worker, call
        assert watched() is None
    finally:
        gc.enable()


def test_a_batch_that_nobody_has_taken_is_not_in_rays_memory_any_more(made):
    """The answer has a copy of its own. What the loop has not taken may be more than that holds."""
    ours, pool, (worker,) = made(count=1)
    pool.handles[0].come_up()
    ours.ask(worker, (0, [0]))
    assert ready(ours) == []
    pool.handles[0].made()[0].answers("zero")
    watched = weakref.ref(pool.handles[0].calls.pop())
    assert watched() is None
    assert ready(ours) == [(0, "zero")]


def test_a_process_that_has_left_the_cluster_asks_nobody(made, monkeypatch):
    """Ray would begin another cluster. What has come is delivered before the error."""
    ours, pool, (worker,) = made(count=1)
    pool.handles[0].come_up()
    ours.ask(worker, (0, [0]))
    assert ready(ours) == []
    pool.handles[0].made()[0].answers("zero")
    pool.disconnected = True
    ours.ask(worker, (1, [1]))
    assert ours.get(0) == (0, "zero") and pool.handles[0].made() == []
    with pytest.raises(Error, match="has left the Ray cluster"):
        ours.get()


def test_actors_that_never_come_up_are_an_error(made):
    ours, pool, _ = made(count=1)
    for number in range(3):
        pool.handles[number].die()
        if number < 2:
            assert ready(ours) == []
    with pytest.raises(Error, match="Ray started none of 3 actors"):
        ours.get(0)


def test_a_worker_whose_actor_has_no_room_is_a_guest_until_it_has(made, monkeypatch):
    for module in (crew, crew):
        monkeypatch.setattr(module, "PATIENCE", -1.0)
    ours, pool, (first, second) = made()
    host, late = pool.handles
    for number, worker in enumerate([first, second]):
        ours.ask(worker, (number, [number]))
    host.come_up()
    assert ready(ours) == []
    assert [call.index for call in host.made()] == [[0], [1]] and pool.counts.moved == 1
    late.come_up()
    assert ready(ours) == []
    assert [call.index for call in late.made()] == [[1]]
    for call in host.made():
        call.answers("of the host")
    assert ready(ours) == [(0, "of the host")]  # the guest's batch comes from its own actor now
    late.made()[0].answers("its own")
    assert ready(ours) == [(1, "its own")]


def test_a_guest_that_has_gone_home_loses_nothing_with_its_host(made, monkeypatch):
    """Its batches are asked for at home before the host dies of one of them: that is no batch that was
    lost and made again."""
    for module in (crew, crew):
        monkeypatch.setattr(module, "PATIENCE", -1.0)
    ours, pool, (first, second) = made()
    late, host = pool.handles
    for number, worker in enumerate([first, second]):
        ours.ask(worker, (number, [number]))
    host.come_up()
    assert ready(ours) == []
    assert sorted(call.index for call in host.made()) == [[0], [1]] and pool.counts.moved == 1
    next(call for call in host.made() if call.index == [1]).answers("the host's own")
    assert ready(ours) == [(1, "the host's own")]
    late.come_up()
    assert ready(ours) == []
    host.die()
    assert ready(ours) == []
    assert (pool.counts.replaced, pool.counts.remade) == (1, 0)
    (call,) = late.made()
    call.answers("at home")
    assert ready(ours) == [(0, "at home")]


def test_an_actor_that_is_up_already_begins_once(made):
    """It may come up between being asked for and being looked at."""
    ours, pool, (worker,) = made(count=1)
    actor = ours._actors[0]
    actor.up, actor.node = True, "a node"
    ours._came_up(actor)
    pool.handles[0].come_up()
    ours.ask(worker, (0, [0]))
    assert ready(ours) == []
    assert len(pool.handles[0].began()) == 1 and len(pool.handles[0].made()) == 1


def test_actors_are_kept_for_the_next_epoch(made, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cancel", lambda reference: None)
    ours, pool, begun = made()
    for handle in pool.handles:
        handle.come_up()
    ready(ours)
    for worker in begun:
        assert worker.is_alive()
        ours.end(worker)
        assert not worker.is_alive()
    assert len(pool._idle) == 2 and not pool.killed
    other = crew.Crew(pool, 1, 2)
    taken = other.worker(Setup(0, [], True, None, False, 1, None, 1), 0)
    taken.start()
    assert len(pool.handles) == 2 and taken.actor.up
    assert isinstance(taken, crew.Worker)


def test_an_actor_that_is_stuck_in_the_epoch_before_is_replaced(made, monkeypatch):
    """An early break leaves it at a batch. It takes part again when it is done, if it ever is."""
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "cancel", lambda reference: None)
    ours, pool, (worker,) = made(count=1)
    handle = pool.handles[0]
    handle.come_up()
    ours.ask(worker, (0, [0]))
    ready(ours)
    stuck = handle.made()
    ours.end(worker)
    other = crew.Crew(pool, 1, 2)
    worker = other.worker(Setup(0, [], True, None, False, 1, None, 1), 0)
    worker.start()
    other.ask(worker, (0, [7]))
    assert ready(other) == [] and handle.made() == stuck
    monkeypatch.setattr(crew, "_GIVES_UP_AFTER", -1.0)
    assert ready(other) == []
    assert pool.counts.replaced == 1 and len(pool.handles) == 2
    pool.handles[1].come_up()
    assert ready(other) == []
    assert [call.index for call in pool.handles[1].made()] == [[7]]


def test_a_worker_looks_like_a_process(made):
    _, _, (first, second) = made()
    assert (first.name, first.exitcode, first.is_alive()) == ("fastloader-worker-0", None, True)
    first.kill()
    assert (first.exitcode, first.is_alive(), second.exitcode) == (0, False, None)
