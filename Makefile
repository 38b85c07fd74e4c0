# The two commands of the README, and what they stand on. Everything else is `cargo xtask`.

TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
DEMO_ARGS ?= --duration 30s

.PHONY: help demo demo-serve deb c deb-c wheel static oci release bpf test

help:
	@echo 'make demo   build the release binary and run a farm on this machine for 30 s; DEMO_ARGS="--rate lhc" for other flags'
	@echo 'make demo-serve   build it and show the whole way of TFs: built, written, fetched while a server is drained'
	@echo 'make deb    build a Debian package of the program, into target/deb'
	@echo 'make c      build the library for C and C++, shared and static, into target/c, or PREFIX=/usr/local'
	@echo 'make deb-c  build Debian packages of that library, into target/deb: libsheaf1 and libsheaf-dev'
	@echo 'make wheel  build the Python package, with the program in it, into target/wheels; needs Python 3.11 or later'
	@echo 'make static build the program for any Linux on x86-64 and ARM64, without a C library, into target/static'
	@echo 'make oci    build an image of it for containers, named sheaf, by podman, buildah or docker'
	@echo 'make release  build all of these with checksums, components, licences and notes, into target/release-files'
	@echo 'make bpf    build the BPF program of the plane tc; needs clang and the headers of libbpf'
	@echo 'make test   set this machine up and run all that CI runs: format, lints, docs, tidy, tests'

demo:
	@scripts/setup.sh demo
	cargo build --release --locked --bin sheaf --no-default-features --features tui,monitor
	$(TARGET_DIR)/release/sheaf demo $(DEMO_ARGS)

demo-serve:
	@scripts/setup.sh demo
	cargo build --release --locked --bin sheaf
	$(TARGET_DIR)/release/sheaf serve demo $(DEMO_SERVE_ARGS)

# The program, its units, manual pages, completions and an example of the farm file.
deb:
	@scripts/setup.sh demo
	cargo build --release --locked --bin sheaf
	scripts/deb.sh $(TARGET_DIR)/release/sheaf $(TARGET_DIR)/deb

# The library for C and C++.
c:
	@scripts/setup.sh demo
	cargo build --release --locked -p sheaf-c
	scripts/c.sh $(TARGET_DIR)/release $(or $(PREFIX),$(TARGET_DIR)/c)

# Debian packages of it.
deb-c:
	@scripts/setup.sh demo
	cargo build --release --locked -p sheaf-c
	scripts/deb-c.sh $(TARGET_DIR)/release $(TARGET_DIR)/deb

# The Python package for every Python from 3.11 on, and the program `sheaf` in it.
wheel:
	@scripts/setup.sh demo
	@scripts/setup.sh python
	cargo build --release --locked --bin sheaf
	mkdir -p bindings/python/sheaf.data/scripts
	cp $(TARGET_DIR)/release/sheaf bindings/python/sheaf.data/scripts/
	$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/sheaf/python/bin/maturin build --release --locked \
		--manifest-path bindings/python/Cargo.toml --out $(TARGET_DIR)/wheels

# The program as one file for any Linux.
static:
	@scripts/setup.sh static
	scripts/static.sh x86_64 $(TARGET_DIR)/static
	scripts/static.sh aarch64 $(TARGET_DIR)/static

# An image of that for this machine.
oci:
	@scripts/setup.sh static
	scripts/static.sh $(shell uname -m) $(TARGET_DIR)/static
	scripts/oci.sh $(TARGET_DIR)/static

# All files of a release of the commit that is checked out.
release: bpf
	@scripts/setup.sh release
	scripts/release.sh $(TARGET_DIR)/release-files

# The program of the plane `tc`. A director finds it beside the folders of profiles, or in /usr/lib/sheaf.
bpf: $(TARGET_DIR)/bpf/sheaf-direct.bpf.o

$(TARGET_DIR)/bpf/sheaf-direct.bpf.o: crates/io/planes/bpf/direct.bpf.c
	@scripts/setup.sh bpf
	@mkdir -p $(@D)
	clang -O2 -g -Wall -Wextra -Werror -target bpf -mcpu=v3 -I/usr/include/$$(cc -dumpmachine) -c $< -o $@

test: bpf
	@scripts/setup.sh test
	cargo xtask check
