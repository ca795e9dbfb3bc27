"""The training loop of Apex's ImageNet example, with fastloader's data_prefetcher.

python examples/apex_prefetcher.py
"""

import torch
from torch.utils.data import DataLoader, Dataset

# was: the class data_prefetcher, copied from Apex's examples/imagenet/main_amp.py
from fastloader.compat.apex import data_prefetcher


class Pictures(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(
            0, 256, (3, 32, 32), dtype=torch.uint8, generator=generator
        ), index % 10


model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
train_loader = DataLoader(Pictures(), batch_size=16, shuffle=True)

for epoch in range(2):
    prefetcher = data_prefetcher(train_loader)
    model.to(prefetcher.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    input, target = prefetcher.next()
    i = 0
    while input is not None:
        i += 1
        loss = torch.nn.functional.cross_entropy(model(input), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        input, target = prefetcher.next()
    print(f"epoch {epoch}: {i} steps, loss {loss.item():.3f}")
