#!/bin/sh
# The first day of a new machine: packages, the tutorial, a farm over three networks. BELOW is a root of Debian that has
# a compiler and no Sheaf (scripts/setup.sh debian), of which a copy is used, which is gone with the mount namespace:
#
#     unshare --mount --pid --fork --kill-child --mount-proc run.sh BELOW FOLDER RESULTS PAGE FILE...
#
# PAGE is the tutorial; FILEs are Debian packages, a wheel, and the programs beside this script. Prints a line with the
# time for each step that held, and ends with status 1 at the first that did not. RESULTS/farm.json and RESULTS/farm.png
# are what the farm has found and drawn.
set -eu
below=$1 folder=$2 results=$3 page=$4
shift 4
. "$(dirname "$0")/../../../../tests/farm/machine.sh"
mount -t tmpfs tmpfs "$root/run"
cp "$page" "$@" "$root/tmp"
began=$(date +%s)

# step TEXT: that it held, and when.
step() {
    held "$1 ($(($(date +%s) - began)) s)"
}

# Nothing of the environment of this machine is in theirs. The words are one argument each.
environment='LANG=C.UTF-8 PATH=/opt/python/bin:/usr/bin:/bin:/usr/sbin:/sbin'

# user COMMAND: what a newcomer does.
user() {
    chroot --userspec=newcomer:newcomer "$root" env -i $environment HOME=/home/newcomer sh -c "cd && $1"
}

# administrator COMMAND: what the administrator does.
administrator() {
    chroot "$root" env -i $environment HOME=/root sh -c "cd && $1"
}

administrator 'useradd --create-home newcomer'
! administrator 'command -v sheaf' || lost 'is new'
administrator 'apt-get install -q -y --no-install-recommends /tmp/*.deb' >"$folder/apt" 2>&1 || {
    cat "$folder/apt" >&2
    lost 'installs the Debian packages'
}
administrator 'command -v sheaf' | grep -qx /usr/bin/sheaf || lost 'has the program of the package'
step 'installs the Debian packages'

administrator "python3 -m venv /opt/python && cd /tmp &&
    pip install -q --no-index --find-links /srv/wheels \"\$(echo sheaf-*.whl)[numpy]\" matplotlib" || lost 'installs the wheel'
administrator 'command -v sheaf' | grep -qx /opt/python/bin/sheaf || lost 'has the program of the wheel'
step 'installs the wheel'

user "mkdir tutorial && python3 /tmp/page.py /tmp/${page##*/} tutorial" | grep -q '^3 blocks' \
    || lost 'does the tutorial as written'
step 'does the tutorial as written'

user 'mkdir farm && cp /tmp/*.py farm &&
    c++ -std=c++17 -O2 /tmp/analysis.cpp -o farm/analysis $(pkg-config --cflags --libs sheaf)' \
    || lost 'compiles a program in C++'
step 'compiles a program in C++'

administrator 'cd /home/newcomer/farm && python3 farm.py newcomer' >"$results/farm.json" || {
    tail -n 20 "$root"/home/newcomer/farm/log/*.log >&2
    lost 'runs a farm over three networks'
}
cp "$root/home/newcomer/farm/farm.png" "$results"
step 'runs a farm over three networks, of which one EPN is killed'
