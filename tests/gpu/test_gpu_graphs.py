"""CUDA graphs beside a running loader: neither disturbs the other."""

import gc

import pytest
import torch

from exact import normalised, same_bits
from fastloader import FastLoader
from support import MEAN, STD, Pictures, random_images

WORKERS = pytest.mark.parametrize("workers", [0, 2])


def make(gpu, data, workers, **options):
    options = {"batch_size": 4, "num_workers": workers, "device": gpu.name, **options}
    return FastLoader(data, mean=MEAN, std=STD, **options)


def doubling(static):
    """(what a graph does, where it leaves it)"""
    doubled = torch.zeros_like(static)
    return (lambda: torch.mul(static, 2, out=doubled)), doubled


def check(data, doubled, label):
    wanted = normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
    assert torch.equal(doubled.cpu(), wanted * 2)


@WORKERS
def test_capture_beside_a_running_loader(gpu, way, workers):
    """The prefetch thread is at work while graphs are captured in the default, strictest mode."""
    data = Pictures(160, size=(65, 63))
    static = torch.zeros(4, 3, 65, 63, device=gpu.name)
    for image, label in make(gpu, data, workers):
        body, doubled = doubling(static)
        graph = gpu.capture(body)
        static.copy_(image)
        graph.replay()
        check(data, doubled, label)


@WORKERS
def test_one_graph_fed_by_a_loader_on_another_stream(gpu, way, workers):
    data = Pictures(64, size=(33, 31))
    stream = gpu.stream()
    with gpu.using(stream):
        static = torch.zeros(4, 3, 33, 31, device=gpu.name)
        body, doubled = doubling(static)
        graph = gpu.capture(body)
        for _ in range(2):
            for image, label in make(gpu, data, workers, shuffle=True):
                static.copy_(image)
                graph.replay()
                check(data, doubled, label)


@WORKERS
def test_slots_are_pinned_while_graphs_are_captured(gpu, way, workers):
    """Each batch is larger than the one before: the thread that pushes it, which is Python's, pins
    memory, and a capture of the strictest kind ends with an error if any thread does so unprotected."""
    batches = [random_images(i, 2, 3, 20 + 7 * i, 31) for i in range(30)]
    static = torch.zeros(1000, device=gpu.name)
    body, doubled = doubling(static)
    loader = make(gpu, batches, workers, batch_size=None)
    for number, image in enumerate(loader):
        for _ in range(3):
            graph = gpu.capture(body)
        static.fill_(number)
        graph.replay()
        assert torch.equal(doubled.cpu(), torch.full((1000,), 2.0 * number))
        same_bits(image.cpu(), normalised(batches[number], MEAN, STD, torch.float32))


@pytest.mark.cuda_only
@WORKERS
def test_next_under_capture_is_an_error(gpu, way, workers):
    data = Pictures(24)
    iterator = iter(make(gpu, data, workers))
    image, _ = next(iterator)
    static = torch.zeros_like(image)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = static * 2
        with pytest.raises(RuntimeError, match="graph"):
            next(iterator)
    # The capture is good, and the iterator goes on where it was.
    numbers = []
    for image, label in iterator:
        static.copy_(image)
        graph.replay()
        check(data, doubled, label)
        numbers += label.tolist()
    assert numbers == list(range(4, 24))


@pytest.mark.cuda_only
@WORKERS
def test_an_epoch_may_begin_and_end_inside_a_capture(gpu, way, workers):
    """Only its batches may not be asked for. The loader has run before, so that it knows which memory
    the next epoch will want."""
    data = Pictures(24)
    loader = make(gpu, data, workers)
    static = torch.ones(7, device=gpu.name)
    body, doubled = doubling(static)
    for _ in range(4):
        for image, label in loader:
            assert torch.equal(
                image.cpu(), normalised(data.images[label.cpu()], MEAN, STD, torch.float32)
            )
        ending = iter(loader)
        next(ending)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            body()
            del ending
            gc.collect()
            beginning = iter(loader)
        graph.replay()
        assert doubled.tolist() == [2] * 7
        assert len(list(beginning)) == 6


@pytest.mark.cuda_only
def test_an_iterator_may_end_while_its_own_stream_is_captured(gpu):
    data = Pictures(24)
    stream = torch.cuda.Stream()
    static = torch.ones(7, device=gpu.name)
    body, doubled = doubling(static)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(4):
            iterator = iter(make(gpu, data, 2))
            next(iterator)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                body()
                iterator.close()
            graph.replay()
            assert doubled.tolist() == [2] * 7
