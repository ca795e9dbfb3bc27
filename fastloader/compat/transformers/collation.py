"""When the Trainer's data collator does what ``default_collate`` does, which the native path knows."""

from __future__ import annotations

from typing import Any

from torch.utils.data import Subset

from fastloader._core.machine import identity
from fastloader._core.machine.torch_datasets import kind_of
from fastloader._core.sources.images.recognize import RECOGNIZERS
from fastloader.datasets._formats.sample_form import LABELS, PIXELS

_HOME = "transformers.data.data_collator"


def native_collation(collate_fn: Any, dataset: Any) -> Any:
    """None, which stands for default_collate, if batches of ``dataset`` are the same by it as by the
    data collator ``collate_fn``; else ``collate_fn``.

    They are for fastloader's own datasets of pictures with ``as_dict=True``, without further columns,
    and for the Trainer's default collator: it stacks tensors, and makes int64 of whole numbers.
    """
    inner = collate_fn
    if identity.is_a(inner, ("transformers.trainer_utils", "RemoveColumnsCollator")):
        if identity.change(type(inner), type(inner)):
            return collate_fn
        if not {PIXELS, LABELS} <= set(inner.signature_columns):
            return collate_fn
        inner = inner.data_collator
    while kind_of(dataset) is Subset:
        dataset = dataset.dataset
    known = RECOGNIZERS.known(type(dataset))
    ours = known is not None and not identity.change(type(dataset), known)
    pictures = ours and getattr(getattr(dataset, "form", None), "keys", None) == (PIXELS, LABELS)
    # Which may give floats. The two collators make other dtypes of these.
    whole = getattr(dataset, "target_transform", None) is None
    return None if pictures and whole and _is_default(inner) else collate_fn


def _is_default(collator: Any) -> bool:
    """Whether it is the default collator of transformers, as its source has it."""
    names = ("default_data_collator", "torch_default_data_collator")
    if any(
        identity.function_change(identity.found(_HOME, name), _HOME, name) != "" for name in names
    ):
        return False
    if identity.is_a(collator, (_HOME, "DefaultDataCollator")):
        return collator.return_tensors == "pt" and not identity.change(
            type(collator), type(collator)
        )
    return collator is identity.found(_HOME, names[0])
