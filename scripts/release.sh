#!/bin/sh
# Makes a release of the commit that is checked out, in the folder OUT:
#
#     scripts/release.sh OUT
#
#     sheaf_V_ARCH.deb                         the package for Debian
#     libsheaf1_V_ARCH.deb, libsheaf-dev_V_ARCH.deb  the library for C and C++ for Debian
#     sheaf-V-linux-{x86_64,aarch64}.tar.gz    the static program
#     sheaf-V-*.whl                            the package for Python
#     libsheaf-V-linux-ARCH.tar.gz             the library for C and C++
#     sheaf-V.cdx.json, sheaf-pages-V.cdx.json components of the program and of its pages (CycloneDX)
#     THIRD-PARTY.html                         licences of all components
#     NOTES.md                                 the section of the changelog
#     SHA256SUMS                               sums of all of these
#
# Files of one release are there together: OUT is new or empty, and is made at the end. Takes about an hour on two
# processors. `make release` installs what it needs. SHEAF_RELEASE_DIRTY=1 takes a tree with changes, to try it.
set -eu
mkdir -p "$1"
out=$(realpath "$1")
cd "$(dirname "$0")/.."

fail() {
    echo "release: $1" >&2
    exit 1
}

[ -z "$(ls -A "$out")" ] || fail "found files in $out, expected an empty folder"
[ -n "${SHEAF_RELEASE_DIRTY:-}" ] || [ -z "$(git status --porcelain)" ] || fail 'found changes in the tree, expected none'
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"$/\1/p' Cargo.toml)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
made=$place/made
mkdir "$made"
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
targets=${CARGO_TARGET_DIR:-target}
tools=$(realpath "$targets")/tools/bin

step() {
    echo "release: $1" >&2
}

# From "## V" to the next heading of that level.
awk -v version="$version" '
    /^## / { is_it = ($2 == version || $2 == version ",") ; next }
    is_it { print }
' CHANGELOG.md >"$made/NOTES.md"
grep -q . "$made/NOTES.md" || fail "found no section $version in CHANGELOG.md, expected \"## $version\""

step 'package for Debian'
make --no-print-directory deb >&2
cp "$targets/deb/sheaf_${version}-1_$(dpkg --print-architecture).deb" "$made"

step 'package for Python'
rm -rf "$targets/wheels"
make --no-print-directory wheel >&2
cp "$targets"/wheels/sheaf-"$version"-*.whl "$made"

step 'library for C and C++'
library=libsheaf-$version-linux-$(uname -m)
make --no-print-directory c "PREFIX=$place/$library" >&2
scripts/deb-c.sh "$targets/release" "$made" >&2
cp LICENSE LICENSE-APACHE LICENSE-MIT "$place/$library"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$place" -c "$library" \
    | gzip -9n >"$made/$library.tar.gz"

for arch in x86_64 aarch64; do
    step "static program for $arch"
    scripts/static.sh "$arch" "$made" >&2
done

step 'components and licences'
# The tool writes beside each manifest: into a copy of the tree.
git clone -q --shared . "$place/tree"
(
    cd "$place/tree"
    "$tools/cargo-cyclonedx" cyclonedx -q --manifest-path crates/apps/sheaf/Cargo.toml --format json --spec-version 1.5 \
        --override-filename sheaf.cdx
)
cp "$place/tree/crates/apps/sheaf/sheaf.cdx.json" "$made/sheaf-$version.cdx.json"
(
    cd "$place/tree/web"
    # The tool wants a version, which the package has none of its own.
    sed -i "s/\"private\": true/\"private\": true, \"version\": \"$version\"/" package.json
    npm sbom --omit dev --package-lock-only --sbom-format cyclonedx
) >"$made/sheaf-pages-$version.cdx.json"
"$tools/cargo-about" generate --locked --config deploy/release/about.toml --manifest-path crates/apps/sheaf/Cargo.toml \
    deploy/release/licences.hbs --output-file "$made/THIRD-PARTY.html"

(cd "$made" && sha256sum -- * >"$place/SHA256SUMS" && mv "$place/SHA256SUMS" .)
mv "$made"/* "$out"
echo "$out"
