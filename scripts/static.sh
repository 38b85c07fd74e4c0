#!/bin/sh
# Builds the program for machines of ARCH (x86_64 or aarch64) with any Linux, and packs it in the folder OUT:
#
#     scripts/static.sh ARCH OUT
#
# One file without a C library of the machine, by musl; zig compiles its C parts and links it. The archive has the
# program, licences, manual pages, completions and the example of the farm file. Equal inputs give equal archives.
set -eu
arch=$1
mkdir -p "$2"
out=$(realpath "$2")
cd "$(dirname "$0")/.."

fail() {
    echo "static: $1" >&2
    exit 1
}

case $arch in
x86_64 | aarch64) target=$arch-unknown-linux-musl ;;
*) fail "found machine $arch, expected x86_64 or aarch64" ;;
esac
zig=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/zig/bin
[ -x "$zig/cargo-zigbuild" ] || fail 'missing: cargo-zigbuild; scripts/setup.sh static'
targets=${CARGO_TARGET_DIR:-target}
CARGO_PROFILE_RELEASE_STRIP=symbols PATH=$zig:$PATH cargo zigbuild --release --locked --bin sheaf --target "$target"
program=$targets/$target/release/sheaf

# Runs the program, in an emulation if this machine is another one.
run() {
    if [ "$arch" = "$(uname -m)" ]; then
        "$program" "$@"
    else
        "qemu-$arch" "$program" "$@"
    fi
}

version=$(run --version | sed -n 's/^sheaf \([0-9.]*\).*/\1/p')
[ -n "$version" ] || fail "$program does not run"
# A file of a detector, and a simulated farm with faults.
for smoke in 'data inspect testdata/alice-its-rdh7/10_rdh.raw' 'sim torture --one 1'; do
    # The words of $smoke are arguments.
    # shellcheck disable=SC2086
    run $smoke >"${TMPDIR:-/tmp}/sheaf-smoke.$$" 2>&1 || fail "$program $smoke: see ${TMPDIR:-/tmp}/sheaf-smoke.$$"
    rm -f "${TMPDIR:-/tmp}/sheaf-smoke.$$"
done
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
name=sheaf-$version-linux-$arch
root=$place/$name
mkdir "$root" "$root/completions"
install -m 755 "$program" "$root/sheaf"
cp LICENSE LICENSE-APACHE LICENSE-MIT CHANGELOG.md "$root"
run config example >"$root/example.toml"
run manual --write "$root/man/man1"
for shell in bash zsh fish; do
    run completions "$shell" >"$root/completions/sheaf.$shell"
done
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$place" -c "$name" \
    | gzip -9n >"$out/$name.tar.gz"
echo "$out/$name.tar.gz"
