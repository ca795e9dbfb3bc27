"""What is run is what nvcc writes for each architecture of the wheel, and all of it."""

from kernel_build import KERNEL_FILES, architectures


def test_every_architecture_of_the_wheel_has_a_flavour(device):
    expected = {f"sm_{each}" for each in architectures()}
    assert expected
    for file in KERNEL_FILES:
        targets = [target for flavour in device.flavours[file] for target in flavour.targets]
        assert sorted(targets) == sorted(expected), file


def test_the_flavours_have_the_kernels_that_the_host_code_registers(device):
    for file in KERNEL_FILES:
        names = [set(flavour.module.kernels) for flavour in device.flavours[file]]
        assert all(each == names[0] for each in names), file
    texts = [set(device.flavours[file][0].module.kernels) for file in KERNEL_FILES]
    assert set.union(*texts) == device.registered
    assert sum(map(len, texts)) == len(device.registered)
