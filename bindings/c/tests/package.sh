#!/bin/sh
# The Debian packages of the library in a copy of this machine's root, which is gone with the mount namespace:
#
#     unshare -m bindings/c/tests/package.sh FOLDER PACKAGE...
#
# Prints a line for each step that held; ends with status 1 at the first that did not.
set -eu
folder=$1
shift

. "$(dirname "$0")/../../../tests/farm/machine.sh"
cp "$@" "$root/tmp"

# usage PROGRAM: an example says how it is used, which it does only if the library is found and loaded.
usage() {
    said=$(inside "$1" 2>&1 || true)
    case $said in usage:*) ;; *) lost "$1 runs: $said" ;; esac
}

inside sh -c 'dpkg -i /tmp/*.deb' >/dev/null
examples=/usr/share/doc/libsheaf-dev/examples
inside sh -c "cc -std=c99 $examples/source.c -o /tmp/source \$(pkg-config --cflags --libs sheaf)"
usage /tmp/source
held 'a program in C is compiled with pkg-config, and runs'

inside sh -c "cmake -S $examples -B /tmp/build && cmake --build /tmp/build" >"$folder/cmake" 2>&1 || {
    cat "$folder/cmake" >&2
    lost 'builds the examples with CMake'
}
usage /tmp/build/consumer_c
held 'CMake finds it without a prefix'

inside dpkg -r libsheaf-dev >/dev/null
usage /tmp/source
held 'programs run without what compiling them needed'

inside sh -c 'dpkg -P libsheaf-dev libsheaf1' >/dev/null
left=$(cd "$folder/upper" && find . -type f ! -path './var/lib/dpkg/*' ! -path './var/cache/*' ! -path './var/log/*' \
    ! -path './etc/ld.so.cache')
[ -z "$left" ] || lost "leaves nothing behind: $left"
held 'it goes, and leaves nothing behind'
