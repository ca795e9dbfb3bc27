"""LMDB files of any pairs."""


def write(path, pairs):
    import lmdb  # a test that has none is skipped before it comes here

    with lmdb.open(str(path), subdir=False, map_size=1 << 26) as environment:
        with environment.begin(write=True) as transaction:
            for key, value in pairs:
                transaction.put(key, value)
    return path
