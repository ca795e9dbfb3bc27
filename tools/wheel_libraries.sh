#!/usr/bin/env bash
# Builds the libraries that a wheel holds: libjpeg-turbo, zlib, libwebp and liburing, static and
# position-independent, so that CMake links them into the module and hides their names.
#
#   tools/wheel_libraries.sh PREFIX ARCHIVES
#
# ARCHIVES is a folder for the source archives of Debian 12 and 13. Those that are not there are fetched.
# Each must have the checksum below. CC and CXX choose the compiler, CMAKE_ARGS has more for CMake;
# WITHOUT_URING=1 leaves liburing out.
# Needs cmake, make, curl and, for x86-64, nasm.
set -euo pipefail

prefix=$(realpath -m "$1") archives=$(realpath -m "$2")
export CC=${CC:-cc} CXX=${CXX:-c++}
pool=https://deb.debian.org/debian/pool/main
build=$(mktemp -d "${TMPDIR:-/tmp}/wheel-libraries.XXXXXX")
trap 'rm -rf "$build"' EXIT
mkdir -p "$prefix" "$archives"

# unpacked FOLDER ARCHIVE CHECKSUM: into $build/FOLDER.
unpacked() {
  local folder=$1 name=${2##*/} checksum=$3
  if [[ ! -f $archives/$name ]]; then
    curl -fsSL --retry 3 -o "$build/$name" "$pool/${2//+/%2b}"
    mv "$build/$name" "$archives/$name"
  fi
  sha256sum --quiet --check <<<"$checksum  $archives/$name"
  mkdir "$build/$folder"
  tar -xf "$archives/$name" -C "$build/$folder" --strip-components=1
}

# with_cmake FOLDER OPTION...
with_cmake() {
  local folder=$build/$1
  shift
  # shellcheck disable=SC2086  # several arguments
  cmake -S "$folder" -B "$folder/made" -Wno-dev -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR="$prefix/lib" -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF \
    -DCMAKE_POLICY_VERSION_MINIMUM=3.5 ${CMAKE_ARGS:-} "$@"
  cmake --build "$folder/made" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
  cmake --install "$folder/made"
}

unpacked jpeg libj/libjpeg-turbo/libjpeg-turbo_2.1.5.orig.tar.gz \
  254f3642b04e309fee775123133c6464181addc150499561020312ec61c1bf7c
# Without SIMD it would still build, and be slow.
with_cmake jpeg -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DREQUIRE_SIMD=ON

unpacked zlib z/zlib/zlib_1.3.dfsg+really1.3.1.orig.tar.gz \
  60dd315c07f616887caa029408308a018ace66e3d142726a97db164b3b8f69fb
(
  cd "$build/zlib"
  CFLAGS="-O3 -fPIC" ./configure --static --prefix="$prefix"
  make libz.a
  make install
)

unpacked webp libw/libwebp/libwebp_1.5.0.orig.tar.gz \
  7d6fab70cf844bf6769077bd5d7a74893f8ffd4dfb42861745750c63c2a5c92c
with_cmake webp -DWEBP_BUILD_{ANIM_UTILS,CWEBP,DWEBP,GIF2WEBP,IMG2WEBP,VWEBP,WEBPINFO,WEBPMUX,EXTRAS}=OFF

[[ ${WITHOUT_URING:-} != 1 ]] || exit 0
unpacked uring libu/liburing/liburing_2.9.orig.tar.gz \
  57e9b36e4ac1e46b8e0351dfb1694dc59638fc25e384b4ba36d87b800b16db1a
(
  cd "$build/uring"
  ./configure --prefix="$prefix" --libdir="$prefix/lib" --cc="$CC" --cxx="$CXX"
  make -C src ENABLE_SHARED=0 CFLAGS="-O2 -fPIC"
  make -C src ENABLE_SHARED=0 install
)
