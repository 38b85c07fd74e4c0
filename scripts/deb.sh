#!/bin/sh
# Makes a Debian package of the program at PROGRAM, in the folder OUT:
#
#     scripts/deb.sh PROGRAM OUT [REVISION]
#
# The program, systemd units, manual pages, completions of bash, zsh and fish, an example of the farm file, dashboards.
# Equal inputs give equal packages: times are those of the last commit. REVISION (1) is Debian's part of the version.
# SHEAF_DEB_COMPRESSION is one of those of dpkg-deb, xz if it is not set.
set -eu
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
revision=${3:-1}
cd "$(dirname "$0")/.."

. scripts/deb-common.sh

architecture=$(deb_architecture)
version=$("$program" --version | sed -n 's/^sheaf \([0-9.]*\).*/\1/p')
[ -n "$version" ] || fail "$program is not the program sheaf"

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

put() {
    install -D -m "$1" "$2" "$root$3"
}

put 755 "$program" /usr/bin/sheaf
# The symbols that a profiler needs stay in the build; the package has none.
if command -v strip >/dev/null; then
    strip --strip-unneeded "$root/usr/bin/sheaf"
fi
for unit in deploy/systemd/*.service; do
    put 644 "$unit" "/lib/systemd/system/${unit##*/}"
done
for dashboard in deploy/grafana/*.json; do
    put 644 "$dashboard" "/usr/share/sheaf/grafana/${dashboard##*/}"
done
"$program" manual --write "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*
chmod 644 "$root"/usr/share/man/man1/*
for shell in bash zsh fish; do
    case $shell in
    bash) place=/usr/share/bash-completion/completions/sheaf ;;
    zsh) place=/usr/share/zsh/vendor-completions/_sheaf ;;
    fish) place=/usr/share/fish/vendor_completions.d/sheaf.fish ;;
    esac
    mkdir -p "$root${place%/*}"
    "$program" completions "$shell" >"$root$place"
done
mkdir -p "$root/etc/sheaf"
"$program" config example >"$root/etc/sheaf/example.toml"
# The program of the plane `tc`, where `make bpf` has built it.
bpf=${CARGO_TARGET_DIR:-target}/bpf/sheaf-direct.bpf.o
[ ! -f "$bpf" ] || put 644 "$bpf" /usr/lib/sheaf/sheaf-direct.bpf.o
mkdir -p "$root/usr/lib/sysusers.d"
echo 'u sheaf - "Sheaf" /var/lib/sheaf' >"$root/usr/lib/sysusers.d/sheaf.conf"

deb_docs "$root" sheaf

mkdir "$root/DEBIAN"
echo /etc/sheaf/example.toml >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<CONTROL
Package: sheaf
Version: $version-$revision
Architecture: $architecture
Maintainer: Sheaf <sheaf@localhost>
Section: science
Priority: optional
Installed-Size: $(deb_size "$root")
Depends: libc6 (>= $(deb_glibc "$program")), libgcc-s1, systemd | systemd-standalone-sysusers | adduser
Suggests: prometheus, grafana, zookeeper
Description: load-balanced frame building for streaming data acquisition
 Many readout nodes each hold a part of every timeframe; all parts of one timeframe
 meet in one of many processing nodes. This package has the nodes, the collector of
 metrics, the writer and the director of storage servers, as one program.
CONTROL
cat >"$root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
# Nodes that run are not restarted: an operator drains them, one after the other.
set -e
if [ "$1" = configure ]; then
    if command -v systemd-sysusers >/dev/null; then
        systemd-sysusers sheaf.conf
    elif ! getent passwd sheaf >/dev/null; then
        adduser --quiet --system --group --no-create-home --home /var/lib/sheaf sheaf
    fi
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload || true
    fi
fi
POSTINST
cat >"$root/DEBIAN/prerm" <<'PRERM'
#!/bin/sh
# Removal ends the nodes of this machine as an operator does: they drain.
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop 'sheaf-*.service' || true
fi
PRERM
cat >"$root/DEBIAN/postrm" <<'POSTRM'
#!/bin/sh
# Farm files, keys and data of the operator stay; the user stays as long as they do.
set -e
if [ "$1" = purge ]; then
    rmdir --ignore-fail-on-non-empty /etc/sheaf 2>/dev/null || true
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
POSTRM
chmod 755 "$root"/DEBIAN/postinst "$root"/DEBIAN/prerm "$root"/DEBIAN/postrm
deb_build "$root" "$out/sheaf_$version-${revision}_$architecture.deb"
