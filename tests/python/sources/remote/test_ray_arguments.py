"""What is refused before there is a cluster, in words that help."""

import sys

import pytest
import torch
from torch.utils.data import TensorDataset
from torch.utils.data.datapipes.iter import IterableWrapper

from fastloader import Error, FastLoader
from support import Pictures, run_script

RAY = {"worker_backend": "ray", "num_workers": 2}


@pytest.fixture
def ray():
    return pytest.importorskip("ray")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_workers": 0}, "say how many actors"),
        ({"num_workers": "auto"}, "this machine's processors"),
        ({"ray_options": {"max_restarts": 3}}, "max_restarts=3: leave it out, the loader replaces"),
        ({"ray_options": {"num_cpus": -1}}, "ray_options={'num_cpus': -1}"),
        ({"ray_options": {"cpus": 1}}, "ray_options={'cpus': 1}"),
        ({"multiprocessing_context": "fork"}, "for worker_backend='process'"),
        ({"dataset": IterableWrapper([1])}, "a DataPipe is for worker processes"),
        ({"worker_method": "thread"}, "give one of the two"),
        (
            {"worker_backend": "process", "ray_options": {}},
            "ray_options are for worker_backend='ray'",
        ),
    ],
)
def test_arguments_that_cannot_work(ray, options, said):
    options = {"dataset": Pictures(4), **RAY, **options}
    with pytest.raises(ValueError) as caught:
        FastLoader(**options)
    assert said in str(caught.value)


def test_options_that_are_no_dict(ray):
    with pytest.raises(TypeError, match="ray_options must be a dict"):
        FastLoader(Pictures(4), **RAY, ray_options=4)


def test_without_a_connection(ray):
    loader = FastLoader(Pictures(4), 2, **RAY)
    assert "2 Ray actors" in loader.plan()
    with pytest.raises(Error, match=r"call ray.init\(\)"):
        iter(loader)
    assert not ray.is_initialized()
    assert "ray" not in loader.stats()


SHUTDOWN = """
    import sys, time
    import ray
    from ray.exceptions import RayActorError, RaySystemError
    from fastloader import Error, FastLoader
    from fastloader._core.sources.remote.actor_pool import Answer
    from support import Pictures

    def tell_of_deaths(crew):
        # Ray's threads may have done so before the loop asks for anything.
        [actor] = crew._actors
        for error in (RayActorError(), RaySystemError("no plasma store"), OSError(), None):
            for task in (None, object()) if error else (None,):
                crew._answers.put(Answer(actor, task, 0, "", time.time(), error, None))

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    loader = FastLoader(Pictures(40), 2, num_workers=1, worker_backend="ray")
    iterator = iter(loader)
    got = []
    try:
        for _, numbers in iterator:
            got += numbers.tolist()
            if len(got) == 6:
                ray.shutdown()
                if sys.argv[1] == "told":
                    tell_of_deaths(iterator._worker_result_queue._crew)
    except Error as error:
        assert "has left the Ray cluster" in str(error), error
    else:
        raise AssertionError("no error")
    assert 6 <= len(got) <= 10 and got == list(range(len(got)))
    loader.close()
    assert not ray.is_initialized()
"""


@pytest.mark.processes
@pytest.mark.parametrize("deaths", ["told", "as they come"])
def test_ray_shutdown_in_the_middle_of_an_epoch(ray, deaths):
    """It ends the loop, and Ray does not begin a cluster of its own."""
    run_script(SHUTDOWN, deaths)


def test_arrays_are_made_by_actors_as_well(ray):
    loader = FastLoader(TensorDataset(torch.arange(8)), 2, **RAY)
    assert loader.plan().startswith("Python path: arrays are gathered here")


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match="pip install ray"):
        FastLoader(Pictures(4), **RAY)


@pytest.mark.processes
def test_ray_is_not_imported_before_it_is_asked_for():
    run_script(
        """
        import sys
        from fastloader import FastLoader
        loader = FastLoader(range(4), 2)
        assert len(list(loader)) == 2
        loader.report(), loader.stats()
        assert "ray" not in sys.modules
        """
    )


def test_a_forked_child_has_no_connection(ray, monkeypatch):
    from fastloader._core.sources.remote import cluster

    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(cluster, "_homes", {})

    class Context:
        def get_job_id(self):
            return "a job"

    monkeypatch.setattr(ray, "get_runtime_context", Context)
    assert cluster.connected() is ray
    cluster._homes["a job"].pid += 1  # as in a child
    with pytest.raises(Error, match="a forked child"):
        cluster.connected()
