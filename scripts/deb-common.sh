# Parts of the scripts that make Debian packages: read by them with `.`, from the root of the repository.
# shellcheck shell=sh

# Times in packages are those of the last commit, so that equal inputs give equal packages.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH

fail() {
    echo "deb: $1" >&2
    exit 1
}

# The architecture in Debian's words.
deb_architecture() {
    command -v dpkg-deb >/dev/null || fail 'missing: dpkg-deb; on Debian: apt-get install dpkg'
    dpkg --print-architecture
}

# deb_docs ROOT PACKAGE: changelog and licence.
deb_docs() {
    docs=$1/usr/share/doc/$2
    install -D -m 644 CHANGELOG.md "$docs/changelog"
    gzip -9n "$docs/changelog"
    {
        echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
        echo 'Upstream-Name: sheaf'
        echo
        echo 'Files: *'
        echo 'Copyright: the authors of Sheaf'
        echo 'License: Apache-2.0 or Expat'
        sed 's/^$/./; s/^/ /' LICENSE-MIT
    } >"$docs/copyright"
}

# deb_glibc FILE: the oldest C library that has every symbol of the program or library.
deb_glibc() {
    glibc=$(grep -ao 'GLIBC_2\.[0-9]*' "$1" | sort -t . -k 2 -nu | tail -n 1)
    echo "${glibc#GLIBC_}"
}

# deb_size ROOT: KiB of the files.
deb_size() {
    du -sk --apparent-size "$1" | cut -f 1
}

# deb_build ROOT PACKAGE: makes the file and prints its path. SHEAF_DEB_COMPRESSION is one of those of dpkg-deb, xz if
# it is not set.
deb_build() {
    find "$1" -type d -exec chmod 755 {} +
    find "$1" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Z"${SHEAF_DEB_COMPRESSION:-xz}" --build "$1" "$2" >/dev/null
    echo "$2"
}
