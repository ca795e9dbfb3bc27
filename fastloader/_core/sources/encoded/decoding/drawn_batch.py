"""What was drawn for the pictures of one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fastloader._core.sources.encoded.batch import EncodedColumn
from fastloader._core.sources.encoded.decoding.decoder import EncodedDecoder
from fastloader._core.sources.encoded.decoding.keys import DrawnBy
from fastloader.datasets.encoded import parameters


class DrawnBatch:
    """Remembers what the draws of a batch depend on, without its pictures.

    Args:
        sizes: by column, the (height, width) of each sample's picture; zeros where it was not read.
    """

    def __init__(
        self,
        decoder: EncodedDecoder,
        columns: Sequence[EncodedColumn],
        chains: Sequence[bytes],
        sizes: Sequence[Sequence[tuple[int, int]]],
        drawn_by: DrawnBy,
    ) -> None:
        self.numbers, self._keys, self._seeds = drawn_by.numbers, drawn_by.keys, drawn_by.seeds
        self._decoder = decoder
        self._columns = columns
        self._chains = chains
        self._sizes = sizes

    def replay(self, position: int) -> dict[str, Any] | list[dict[str, Any]]:
        """What became of a sample, as ``loader.replay`` gives it; of several pictures, a list."""
        found = []
        for number, column in enumerate(self._columns):
            drawn = self._drawn(number, position)
            chain = self._decoder.chain(self._chains[column.chains[position]])
            found.append(chain.replayed(drawn, *self._key(position), column.number))
        return found[0] if len(found) == 1 else found

    def parameters(self, number: int) -> dict[str, torch.Tensor]:
        """The parameters of a column, as `EncodedImage` has them."""
        column = self._columns[number]
        return parameters(
            [self._decoder.chain(self._chains[each]) for each in column.chains],
            [self._drawn_if_read(number, position) for position in range(len(self.numbers))],
            [self._key(position) for position in range(len(self.numbers))],
            column.number,
        )

    def _key(self, position: int) -> tuple[int, int]:
        """The seed and the key of a sample."""
        seeds = self._seeds
        return seeds[0] if len(seeds) == 1 else seeds[position], self._keys[position]

    def _drawn_if_read(self, number: int, position: int) -> dict[str, Any] | None:
        """None for a sample that is about to be left out, or to be replaced."""
        return None if 0 in self._sizes[number][position] else self._drawn(number, position)

    def _drawn(self, number: int, position: int) -> dict[str, Any]:
        column, size = self._columns[number], self._sizes[number][position]
        if 0 in size:
            raise ValueError(f"the picture of sample {self.numbers[position]} could not be read")
        chain = self._chains[column.chains[position]]
        drawn: dict[str, Any] = self._decoder.drawn(
            chain, size, *self._key(position), column.number
        )
        return drawn
