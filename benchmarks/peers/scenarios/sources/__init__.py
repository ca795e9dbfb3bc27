"""The contenders of ``--source``: a module for each place where pictures lie, or for each package that
reads them. ``places.py`` names them.

All make the same of a picture: RandomResizedCrop to 224 and a flip, uint8. A module makes the copy that
it reads from the folder ``settings.root``, in ``settings.work``, unless another contender has made it.
"""
