"""The DataLoaderX of the tutorials: the next batches are made on a thread.

python examples/data_loader_x.py
"""

import torch
from torch.utils.data import Dataset

# was: class DataLoaderX(DataLoader):
#          def __iter__(self):
#              return BackgroundGenerator(super().__iter__())
from fastloader.compat.prefetch_generator import DataLoaderX


class Pictures(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randint(
            0, 256, (3, 32, 32), dtype=torch.uint8, generator=generator
        ), index % 10


model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoaderX(
    Pictures(),
    batch_size=16,
    shuffle=True,
    max_prefetch=2,
    # What DataLoader cannot do: deliver normalised batches to the device.
    device="auto",
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
)
model.to(loader.stats()["device"])
for epoch in range(2):
    for images, labels in loader:
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch}: loss {loss.item():.3f}")
