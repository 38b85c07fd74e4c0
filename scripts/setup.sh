#!/bin/sh
# Brings this machine to where `make demo` or `make test` works, or says in one line what is missing.
#
#     scripts/setup.sh demo|test
#
# Installs Debian packages when it runs as root, and npm packages when there is a package.json. Asks
# nothing, and does nothing the second time.
set -eu
cd "$(dirname "$0")/.."

# command:package, for what tests need beyond Rust, a C compiler and make. One place: add here.
test_packages=''

fail() {
    echo "setup: $1" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

need_tools() {
    has cargo || fail 'missing: Rust 1.95 (cargo); see https://rustup.rs'
    # With rustup, cargo may exist while the toolchain that rust-toolchain.toml names does not.
    cargo --version >/dev/null 2>&1 || fail 'missing: the Rust toolchain that rust-toolchain.toml names'
    has cc || fail 'missing: a C compiler (cc); on Debian: apt-get install build-essential'
    has make || fail 'missing: make; on Debian: apt-get install make'
}

need_test_tools() {
    cargo fmt --version >/dev/null 2>&1 || fail 'missing: rustfmt; rustup component add rustfmt'
    cargo clippy --version >/dev/null 2>&1 || fail 'missing: clippy; rustup component add clippy'
}

need_packages() {
    missing=''
    for entry in $test_packages; do
        has_command "${entry%%:*}" || missing="$missing ${entry##*:}"
    done
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! has apt-get; then
        fail "missing:$missing; as root on Debian: apt-get install$missing"
    fi
    echo "setup: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    # The words of $missing are package names, one argument each.
    # shellcheck disable=SC2086
    if ! { apt-get update -q && apt-get install -q -y --no-install-recommends $missing; } \
        >"$log" 2>&1 </dev/null; then
        reason=$(tail -n 1 "$log")
        rm -f "$log"
        fail "missing:$missing; apt-get could not install them: $reason"
    fi
    rm -f "$log"
}

# System tools often lie in /sbin, which is not on every user's path.
has_command() {
    has "$1" || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]
}

need_npm_packages() {
    [ -f package.json ] || return 0
    { has node && has npm; } || fail 'missing: Node.js (node and npm)'
    # npm writes this file last, so it is newer than the lock file exactly if nothing has changed.
    if [ -n "$(find node_modules/.package-lock.json -newer package-lock.json 2>/dev/null)" ]; then
        return 0
    fi
    echo 'setup: installing npm packages'
    npm ci --no-audit --no-fund --silent </dev/null || fail 'missing: npm packages; npm ci failed'
}

case "${1:-}" in
demo)
    need_tools
    ;;
test)
    need_tools
    need_test_tools
    need_packages
    need_npm_packages
    ;;
*)
    echo 'usage: scripts/setup.sh demo|test' >&2
    exit 2
    ;;
esac
