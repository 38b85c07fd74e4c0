#!/bin/sh
# Builds the image `sheaf` of the static programs in STATIC, where `make static` has put them:
#
#     scripts/oci.sh STATIC [NAME]
#
# By podman, buildah or docker, whichever is there; for the machine that it runs on. NAME is that of the image, sheaf if
# it is not given.
set -eu
static=$(realpath "$1")
name=${2:-sheaf}
cd "$(dirname "$0")/.."

fail() {
    echo "oci: $1" >&2
    exit 1
}

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
mkdir "$place/tmp"
for pair in x86_64:amd64 aarch64:arm64; do
    archive=$(find "$static" -name "sheaf-*-linux-${pair%%:*}.tar.gz" | sort | tail -n 1)
    [ -n "$archive" ] || continue
    mkdir -p "$place/linux/${pair##*:}"
    tar -xzf "$archive" -C "$place/linux/${pair##*:}" --strip-components=1 --wildcards '*/sheaf'
done
case $(uname -m) in
x86_64) arch=amd64 ;;
aarch64) arch=arm64 ;;
*) fail "found machine $(uname -m), expected x86_64 or aarch64" ;;
esac
[ -d "$place/linux/$arch" ] || fail "found no archive for $(uname -m) in $static; make static"
for builder in podman buildah docker; do
    command -v "$builder" >/dev/null || continue
    "$builder" build --build-arg "TARGETARCH=$arch" --tag "$name" --file deploy/oci/Containerfile "$place"
    exit
done
fail 'missing: podman, buildah or docker'
