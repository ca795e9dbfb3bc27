"""Which of torchvision's datasets are known."""

from __future__ import annotations

from fastloader._core.sources.images.recognize.known import Known
from fastloader._core.sources.images.recognize.torchvision.arrays import (
    recognize_cifar,
    recognize_labelled,
    recognize_mnist,
    recognize_qmnist,
)
from fastloader._core.sources.images.recognize.torchvision.file_lists import (
    recognize_caltech101,
    recognize_caltech256,
    recognize_imagenette,
    recognize_pets,
    recognize_places,
    recognize_two_lists,
)
from fastloader._core.sources.images.recognize.torchvision.folders import recognize_folders

_TWO_LISTS = Known(recognize_two_lists, ("_image_files", "_labels"))
_MNIST = Known(recognize_mnist, ("data",))
_CIFAR = Known(recognize_cifar, ("data",))
_LABELLED = Known(recognize_labelled, ("data", "labels"))
_FOLDERS = Known(recognize_folders)
_CALTECH = ("root", "categories", "index", "y", "target_type")

# By the module in torchvision.datasets, and the class.
_KNOWN = {
    ("folder", "ImageFolder"): _FOLDERS,
    ("imagenet", "ImageNet"): _FOLDERS,
    ("eurosat", "EuroSAT"): _FOLDERS,
    ("imagenette", "Imagenette"): Known(recognize_imagenette, ("_samples",)),
    ("places365", "Places365"): Known(recognize_places),
    ("food101", "Food101"): _TWO_LISTS,
    ("flowers102", "Flowers102"): _TWO_LISTS,
    ("dtd", "DTD"): _TWO_LISTS,
    ("oxford_iiit_pet", "OxfordIIITPet"): Known(
        recognize_pets, ("_images", "_labels", "_bin_labels", "_target_types")
    ),
    ("caltech", "Caltech101"): Known(recognize_caltech101, _CALTECH),
    ("caltech", "Caltech256"): Known(recognize_caltech256, _CALTECH),
    ("cifar", "CIFAR10"): _CIFAR,
    ("cifar", "CIFAR100"): _CIFAR,
    ("mnist", "MNIST"): _MNIST,
    ("mnist", "FashionMNIST"): _MNIST,
    ("mnist", "KMNIST"): _MNIST,
    ("mnist", "EMNIST"): _MNIST,
    ("mnist", "QMNIST"): Known(recognize_qmnist, ("data", "compat")),
    ("svhn", "SVHN"): _LABELLED,
    ("stl10", "STL10"): _LABELLED,
}

DATASETS = {
    (f"torchvision.datasets.{module}", name): known for (module, name), known in _KNOWN.items()
}
