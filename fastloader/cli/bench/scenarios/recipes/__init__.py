"""The contenders of ``fastloader bench --recipe``: a module for each way to make the dataset.

A module has three functions ``make(settings)``, as every scenario: ``fastloader``,
``fastloader_python``, which is FastLoader with native=False, and ``dataloader``. ``settings.recipe`` is
a name of the table in ``bench/recipes``, and says which transforms.
"""
