"""What is drawn for a mix, taken apart, and done again by Pillow."""

from fastloader.transforms._recipe.operations import OF_MIX, Canvas


def chains_of(operations):
    """The chains that stand between the operations of a mix, and the numbers of those."""
    chains, numbers = [[]], []
    for name, given in operations:
        if name in OF_MIX:
            chains.append([])
            numbers.append(given[0])
        else:
            chains[-1].append((name, given))
    return chains[1:-2], numbers


def redone(image, operations):
    canvas = Canvas(image)
    for operation in operations:
        canvas.apply(*operation)
    return canvas.picture
