#!/bin/sh
# Builds FairMQ 1.10 from sources on this machine, for the test of docs/how-to/zmq.md.
#
#     tools/fairmq.sh SOURCES PREFIX
#
# SOURCES holds the trees `FairMQ` (tag v1.10.x, with its submodules below extern/), `FairLogger` (1.6 or later) and
# `FairCMakeModules`; nothing is downloaded. Needs cmake, a C++ compiler, and on Debian libboost-container-dev,
# libboost-program-options-dev, libboost-filesystem-dev, libboost-date-time-dev, libboost-regex-dev, libzmq3-dev and
# libfmt-dev. Afterwards:
#
#     SHEAF_FAIRMQ_PREFIX=PREFIX cargo test --profile ci -p sheaf --test farm the_fairmq_of_the_zmq_page
set -eu

fail() {
    echo "fairmq: $1" >&2
    exit 1
}

[ $# -eq 2 ] || fail "found $# arguments, expected SOURCES PREFIX"
command -v cmake >/dev/null 2>&1 || fail 'missing: cmake; on Debian: apt-get install cmake'
sources=$(cd "$1" && pwd) || fail "$1 is no folder"
mkdir -p "$2"
prefix=$(cd "$2" && pwd)
for tree in FairCMakeModules FairLogger FairMQ; do
    [ -f "$sources/$tree/CMakeLists.txt" ] || fail "$sources/$tree has no CMakeLists.txt, expected the sources of $tree"
done
jobs=$(nproc 2>/dev/null || echo 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM

# build TREE OPTION...: configures, builds and installs one tree.
build() {
    tree=$1
    shift
    echo "fairmq: building $tree"
    log="$work/$tree.log"
    if ! {
        cmake -S "$sources/$tree" -B "$work/$tree" -DCMAKE_BUILD_TYPE=Release \
            -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_PREFIX_PATH="$prefix" \
            -DCMAKE_INSTALL_RPATH="$prefix/lib" "$@" &&
            cmake --build "$work/$tree" -j "$jobs" &&
            cmake --install "$work/$tree"
    } >"$log" 2>&1; then
        tail -n 30 "$log" >&2
        fail "$tree did not build"
    fi
}

build FairCMakeModules
build FairLogger -DUSE_EXTERNAL_FMT=ON
build FairMQ -DBUILD_EXAMPLES=OFF -DBUILD_TESTING=OFF
for program in fairmq-bsampler fairmq-sink; do
    [ -x "$prefix/bin/$program" ] || fail "$prefix/bin/$program is not there, expected it from FairMQ"
done
version=$("$prefix/bin/fairmq-bsampler" --version 2>/dev/null | head -n 1 || true)
echo "fairmq: installed in $prefix ${version:+($version)}"
