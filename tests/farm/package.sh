#!/bin/sh
# The life of the Debian package in a copy of this machine's root, which is gone with the mount namespace:
#
#     unshare -m tests/farm/package.sh FIRST.deb SECOND.deb FOLDER
#
# Prints a line for each step that held; ends with status 1 at the first that did not.
set -eu
first=$1 second=$2 folder=$3

. "$(dirname "$0")/machine.sh"
cp "$first" "$root/tmp/first.deb"
cp "$second" "$root/tmp/second.deb"

# Packages of this machine may be half configured; those of the test are looked at alone.
inside dpkg -i /tmp/first.deb >/dev/null
inside dpkg-query -W -f '${Status} ${Version}\n' sheaf | grep -q '^install ok installed .*-1$' || lost installs
inside id sheaf >/dev/null || lost 'makes a user'
held 'installs, with a user of its own'

inside sheaf --version | grep -q '^sheaf ' || lost 'is on the path'
for page in sheaf sheaf-run-icn sheaf-config-check; do
    inside test -f "/usr/share/man/man1/$page.1.gz" || lost "has the page $page"
done
inside bash -c '. /usr/share/bash-completion/completions/sheaf && complete -p sheaf >/dev/null' \
    || lost 'completes in bash'
grep -q '^\[icn\]' "$root/etc/sheaf/example.toml" || lost 'has an example of a farm file'
inside test -f /lib/systemd/system/sheaf-icn.service || lost 'has units'
held 'has the program, pages, completions, units and an example'

demo='sheaf demo --flps 1 --epns 1 --source generator --rate 50 --duration 1s --json - 2>/dev/null'
inside su -s /bin/sh sheaf -c "cd /tmp && $demo" | grep -q '"complete"' || lost 'runs a farm as its user'
held 'runs a farm as its user'

printf '[icn]\naddress = "127.0.0.1:7409"\n[icn.ledger]\nbackend = "memory"\n' >"$root/etc/sheaf/farm.toml"
mkfifo "$folder/lines"
chroot "$root" sheaf run icn --config /etc/sheaf/farm.toml --listen 127.0.0.1:0 >"$folder/lines" 2>/dev/null &
icn=$!
head -n 1 "$folder/lines" | grep -q listening || lost 'starts a node'
inside dpkg -i /tmp/second.deb >/dev/null
inside dpkg-query -W -f '${Version}\n' sheaf | grep -q -- '-2$' || lost upgrades
kill -0 "$icn" || lost 'lets nodes run through an upgrade'
kill "$icn"
wait "$icn" || lost 'ends a node of before'
held 'upgrades, and nodes that run go on'

inside dpkg -r sheaf >/dev/null
! inside test -e /usr/bin/sheaf || lost 'removes the program'
inside test -f /etc/sheaf/example.toml || lost 'keeps files of /etc at a removal'
inside dpkg -P sheaf >/dev/null
inside test -f /etc/sheaf/farm.toml || lost 'keeps the farm file of the operator'
! inside test -e /etc/sheaf/example.toml || lost 'purges the example'
left=$(cd "$folder/upper" && find . -type f ! -path './var/lib/dpkg/*' ! -path './var/cache/*' \
    ! -path './var/log/*' ! -name 'passwd*' ! -name 'shadow*' ! -name 'group*' ! -name 'gshadow*' ! -name .pwd.lock \
    ! -path ./etc/sheaf/farm.toml)
[ -z "$left" ] || lost "leaves nothing behind: $left"
held 'goes, and leaves the farm file alone behind'
