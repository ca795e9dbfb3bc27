"""A program's beginning that makes torch one that knows worker threads itself."""

# As pytorch#161044 has it.
NEWER_TORCH = """
import threading
import torch
from torch.utils.data._utils import worker

worker._thread_local_worker_info = threading.local()

def get_worker_info():
    info = getattr(worker._thread_local_worker_info, "worker_info", None)
    return worker._worker_info if info is None else info

for module in (worker, torch.utils.data, torch.utils.data.dataloader):
    module.get_worker_info = get_worker_info
code = get_worker_info.__code__
from torch.utils.data import DataLoader, Dataset
from fastloader import FastLoader

class Data(Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return get_worker_info().id
"""
