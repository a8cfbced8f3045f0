# Two commands do everything: `make demo` (the main job, with its table) and `make test` (everything that must pass).
# Both install missing Debian packages themselves and say so.

CARGO ?= cargo
SHELL := /bin/bash

.PHONY: demo test check unit soak fuzz loom end-to-end packages build release clean

demo:
	scripts/demo

test: packages check unit loom end-to-end

packages:
	@scripts/install-packages

# Formatting, lints, and the checks of xtask (lengths, dependency direction, unsafe code).
check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- --deny warnings
	$(CARGO) xtask check

# Unit, property and documentation tests of every crate but the command's, which are end-to-end. The property tests run the
# same cases each time: what lands does not hang on a throw of dice. `cargo test` without this variable tries new ones.
unit: export PROPTEST_RNG_SEED ?= 1
unit:
	$(CARGO) test --workspace --exclude outboard-cli

# Random worlds on virtual time until one fails or it is interrupted; `make test` runs a fixed number of them.
soak:
	$(CARGO) run --release -p outboard-sim --example soak -- --from $(or $(FROM),1000000)

# Hostile input, guided by coverage: `make fuzz TARGET=middle_box SECONDS=600`, or all targets for a minute each. `make test`
# replays what was found and runs a fixed number of inputs.
fuzz:
	scripts/fuzz $(or $(TARGET),all) $(or $(SECONDS),60)

# The rings and the sleep and wake-up protocol under every interleaving that loom finds.
loom:
	CARGO_TARGET_DIR=target/loom RUSTFLAGS="--cfg loom" $(CARGO) test --release -p outboard-ring --lib --tests

# Real programs through a real FEP over TAP devices in namespaces of their own.
end-to-end: build
	$(CARGO) test -p outboard-cli

build:
	$(CARGO) build --workspace

release:
	$(CARGO) build --workspace --release

clean:
	$(CARGO) clean
