#!/bin/sh
# Makes Debian packages of the library for C and C++ that cargo has built in BUILT, in the folder OUT:
#
#     scripts/deb-c.sh BUILT OUT [REVISION]
#
# libsheaf1, the shared library, for machines that run programs with it; libsheaf-dev, what compiling them needs, with
# examples. Equal inputs give equal packages. REVISION (1) is Debian's part of the version.
set -eu
built=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
revision=${3:-1}
cd "$(dirname "$0")/.."
. scripts/deb-common.sh

architecture=$(deb_architecture)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
libdir=lib/$(cc -dumpmachine | sed 's/-pc-/-/; s/-unknown-/-/')

roots=$(mktemp -d)
trap 'rm -rf "$roots"' EXIT
runtime=$roots/runtime
dev=$roots/dev
LIBDIR=$libdir scripts/c.sh "$built" "$dev/usr" >/dev/null
mkdir -p "$runtime/usr/$libdir"
mv "$dev/usr/$libdir"/libsheaf.so.* "$runtime/usr/$libdir/"
library=$(find "$runtime/usr/$libdir" -type f)
soname=${library%.*}
soname=${soname##*/}
if command -v strip >/dev/null; then
    strip --strip-unneeded "$library"
    strip --strip-debug "$dev/usr/$libdir/libsheaf.a"
fi
chmod 644 "$library"
for example in examples/c/*; do
    install -D -m 644 "$example" "$dev/usr/share/doc/libsheaf-dev/examples/${example##*/}"
done
package=libsheaf${soname##*.}
deb_docs "$runtime" "$package"
deb_docs "$dev" libsheaf-dev

# control ROOT PACKAGE SECTION DEPENDS, and the description on the standard input.
control() {
    size=$(deb_size "$1")
    mkdir "$1/DEBIAN"
    {
        cat <<CONTROL
Package: $2
Source: sheaf
Version: $version-$revision
Architecture: $architecture
Multi-Arch: same
Maintainer: Sheaf <sheaf@localhost>
Section: $3
Priority: optional
Installed-Size: $size
Depends: $4
CONTROL
        cat
    } >"$1/DEBIAN/control"
}

control "$runtime" "$package" libs "libc6 (>= $(deb_glibc "$library")), libgcc-s1" <<'DESCRIPTION'
Description: frame building for streaming data acquisition: shared library
 Sources that give a farm of Sheaf their data, consumers that take timeframes from
 it, and readers of its files, for programs in C and C++.
DESCRIPTION
echo "libsheaf ${soname##*.} $package (>= $version)" >"$runtime/DEBIAN/shlibs"
echo 'activate-noawait ldconfig' >"$runtime/DEBIAN/triggers"
control "$dev" libsheaf-dev libdevel "$package (= $version-$revision), libc6-dev" <<'DESCRIPTION'
Description: frame building for streaming data acquisition: development files
 Headers of the library for C (C99) and C++ (C++17), the static library, what
 pkg-config and CMake need, and examples.
DESCRIPTION

deb_build "$runtime" "$out/${package}_$version-${revision}_$architecture.deb"
deb_build "$dev" "$out/libsheaf-dev_$version-${revision}_$architecture.deb"
