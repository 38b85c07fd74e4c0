#!/bin/sh
# Installs the library for C and C++ that cargo has built in BUILT, below PREFIX:
#
#     cargo build --release --locked -p sheaf-c && scripts/c.sh target/release /usr/local
#
# libsheaf.so with the names that compilers and programs look for, libsheaf.a, sheaf.h, sheaf.hpp, and what pkg-config
# and CMake need to find them. PREFIX can be moved as a whole. LIBDIR is the folder of libraries below it, lib if it is
# not set.
set -eu
built=$(realpath "$1")
mkdir -p "$2"
prefix=$(realpath "$2")
libdir=${LIBDIR:-lib}
cd "$(dirname "$0")/../bindings/c"

number() {
    sed -n "s/^#define SHEAF_ABI_$1 \([0-9]*\)$/\1/p" include/sheaf.h
}
abi=$(number MAJOR).$(number MINOR)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' ../../Cargo.toml)
# What the static library needs, as `rustc --print native-static-libs` says it for Linux.
needed='-lgcc_s -lutil -lrt -lpthread -lm -ldl -lc'

lib=$prefix/$libdir
install -d "$lib/pkgconfig" "$lib/cmake/Sheaf" "$prefix/include"
install -m 644 include/sheaf.h include/sheaf.hpp "$prefix/include"
install -m 644 "$built/libsheaf_c.so" "$lib/libsheaf.so.$abi"
install -m 644 "$built/libsheaf_c.a" "$lib/libsheaf.a"
ln -sf "libsheaf.so.$abi" "$lib/libsheaf.so.${abi%.*}"
ln -sf "libsheaf.so.${abi%.*}" "$lib/libsheaf.so"

# From the folder of a file below $lib to the prefix.
up=$(realpath --relative-to="$lib/pkgconfig" "$prefix")
cat >"$lib/pkgconfig/sheaf.pc" <<PC
prefix=\${pcfiledir}/$up
libdir=\${prefix}/$libdir
includedir=\${prefix}/include

Name: sheaf
Description: Sources and consumers of timeframes for C and C++
Version: $version
Libs: -L\${libdir} -lsheaf
Libs.private: $needed
Cflags: -I\${includedir}
PC

cat >"$lib/cmake/Sheaf/SheafConfig.cmake" <<CMAKE
# Targets Sheaf::sheaf, the shared library, and Sheaf::static.
get_filename_component(_sheaf_prefix "\${CMAKE_CURRENT_LIST_DIR}/../$up" ABSOLUTE)
if(NOT TARGET Sheaf::sheaf)
  add_library(Sheaf::sheaf SHARED IMPORTED)
  set_target_properties(Sheaf::sheaf PROPERTIES
    IMPORTED_LOCATION "\${_sheaf_prefix}/$libdir/libsheaf.so.$abi"
    IMPORTED_SONAME "libsheaf.so.${abi%.*}"
    INTERFACE_INCLUDE_DIRECTORIES "\${_sheaf_prefix}/include")
  add_library(Sheaf::static STATIC IMPORTED)
  set_target_properties(Sheaf::static PROPERTIES
    IMPORTED_LOCATION "\${_sheaf_prefix}/$libdir/libsheaf.a"
    INTERFACE_LINK_LIBRARIES "$(echo "$needed" | sed 's/-l//g; s/ /;/g')"
    INTERFACE_INCLUDE_DIRECTORIES "\${_sheaf_prefix}/include")
endif()
unset(_sheaf_prefix)
CMAKE

cat >"$lib/cmake/Sheaf/SheafConfigVersion.cmake" <<CMAKE
# A version is compatible with older ones of the same major version; before 1.0, of the same minor one.
set(PACKAGE_VERSION "$version")
if(PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
elseif(PACKAGE_FIND_VERSION_MAJOR EQUAL ${version%%.*}
       AND (${version%%.*} GREATER 0 OR PACKAGE_FIND_VERSION_MINOR EQUAL $(echo "$version" | cut -d . -f 2)
            OR PACKAGE_FIND_VERSION_COUNT EQUAL 1))
  set(PACKAGE_VERSION_COMPATIBLE TRUE)
else()
  set(PACKAGE_VERSION_COMPATIBLE FALSE)
endif()
if(PACKAGE_FIND_VERSION VERSION_EQUAL PACKAGE_VERSION)
  set(PACKAGE_VERSION_EXACT TRUE)
endif()
CMAKE
echo "$prefix"
