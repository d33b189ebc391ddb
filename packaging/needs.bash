# shellcheck shell=bash
# Gets what this machine lacks for building and testing: Debian packages by apt, Rust by rustup. Scripts source this at the
# top of the checkout, and then call:
#
#   want COMMAND PACKAGE...   notes the packages unless there is such a command
#   want_rust                 notes the packages that installing Rust needs, unless there is Rust
#   get_packages [OPTION...]  installs all noted packages, with these options of apt-get
#   get_rust                  puts cargo into PATH, in the version of rust-toolchain.toml
#                             NEEDS_EXACT_RUST=yes, as for a release, accepts no other version, even if it is new enough
#   get_rust_target TARGET    installs Rust's standard library for this target
#
# Each installation prints a line. If this user may not install something, the script ends with NEEDS_STATUS, and prints the
# command that installs it.

readonly NEEDS_STATUS=3
# The version of rustup-init, and its SHA-256 sums. Source:
# https://static.rust-lang.org/rustup/archive/VERSION/TARGET/rustup-init.sha256
readonly RUSTUP=1.28.2
declare -rA RUSTUP_SHA256=(
    [x86_64]=20a06e644b0d9bd2fbdbfd52d42540bdde820ea7df86e92e533c073da0cdd43c
    [aarch64]=e3853c5a252fca15252d07cb23a1bdd9377a8c6f3efa01531109281ae47f841c
)
wanted_packages=()
# The folder for Rust if PATH has no rustup. RUSTUP_HOME and CARGO_HOME override it.
own_rust=${KOPS_AGENT_CACHE:-$HOME/.cache/kops-agent}/rust

needs_fail() {
    echo "$0: $*" >&2
    exit "$NEEDS_STATUS"
}

want() {
    command -v "$1" >/dev/null || wanted_packages+=("${@:2}")
}

get_packages() {
    ((${#wanted_packages[@]} > 0)) || return 0
    local apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=5) names=${wanted_packages[*]}
    local install=("${apt[@]}" install -y "$@" "${wanted_packages[@]}")
    if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
        needs_fail "missing: $names. This installs it: sudo apt-get install -y $names"
    fi
    echo "installing by apt: $names"
    export DEBIAN_FRONTEND=noninteractive
    # If apt's lists are missing or stale, the first attempt fails. Then apt updates the lists.
    "${install[@]}" >/dev/null 2>&1 || { "${apt[@]}" update && "${install[@]}" >/dev/null; } ||
        needs_fail "apt could not install $names; what it says is above"
    wanted_packages=()
}

# rustc_is_at_least VERSION [COMMAND...]: whether rustc has this version or a newer one. COMMAND, if given, runs rustc.
rustc_is_at_least() {
    local found
    found=$("${@:2}" rustc --version 2>/dev/null | cut -d ' ' -f 2) || return 1
    [[ -n $found && $(printf '%s\n' "$1" "$found" | sort --version-sort | head -n 1) == "$1" ]]
}

# oldest_rust: prints the oldest Rust version that compiles the sources.
oldest_rust() { sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml; }

# Without rustup, the distribution's Rust is used if it is new enough.
has_rust_without_rustup() {
    [[ ${NEEDS_EXACT_RUST:-no} == no ]] && ! command -v rustup >/dev/null && command -v cargo >/dev/null && rustc_is_at_least "$(oldest_rust)"
}

want_rust() {
    command -v rustup >/dev/null || [[ -x ${CARGO_HOME:-$own_rust/cargo}/bin/rustup ]] || has_rust_without_rustup || want curl curl ca-certificates
}

get_rust() {
    local channel
    channel=$(sed -n 's/^channel = "\(.*\)"/\1/p' rust-toolchain.toml)
    if has_rust_without_rustup; then return; fi
    if ! command -v rustup >/dev/null; then
        export RUSTUP_HOME=${RUSTUP_HOME:-$own_rust/rustup} CARGO_HOME=${CARGO_HOME:-$own_rust/cargo}
        export PATH=$CARGO_HOME/bin:$PATH
        command -v rustup >/dev/null || get_rustup "$channel"
    fi
    if rustup run "$channel" cargo --version >/dev/null 2>&1; then
        is_exact "$channel"
        return
    fi
    if [[ ${RUSTUP_AUTO_INSTALL:-1} != 0 ]]; then
        echo "installing Rust $channel by rustup"
        if rustup --quiet toolchain install "$channel" --profile minimal --component rustfmt,clippy >&2; then
            is_exact "$channel"
            return
        fi
    fi
    if [[ ${NEEDS_EXACT_RUST:-no} == no ]] && rustc_is_at_least "$(oldest_rust)" rustup run stable; then
        echo "Rust $channel is not installed; $(rustup run stable rustc --version) is, and is used"
        export RUSTUP_TOOLCHAIN=stable
        return
    fi
    needs_fail "Rust is missing. This installs it: rustup toolchain install $channel --component rustfmt,clippy"
}

# is_exact CHANNEL: if NEEDS_EXACT_RUST is set, makes rustup use this channel despite RUSTUP_TOOLCHAIN and overrides. Fails if a
# different cargo or rustc comes first in PATH.
is_exact() {
    [[ ${NEEDS_EXACT_RUST:-no} != no ]] || return 0
    export RUSTUP_TOOLCHAIN=$1
    local program said
    for program in cargo rustc; do
        said=$("$program" --version 2>&1) || true
        [[ $said == "$program $1 "* ]] ||
            needs_fail "$(command -v "$program" || echo "$program") says that it is \"$said\", and the commit names Rust $1: remove it from PATH, or put the folder of rustup's programs before it"
    done
}

get_rust_target() {
    [[ -d $(rustc --print sysroot)/lib/rustlib/$1/lib ]] && return
    if command -v rustup >/dev/null; then
        echo "installing Rust's standard library for $1 by rustup"
        if rustup --quiet target add "$1" >&2; then return; fi
    fi
    needs_fail "Rust's standard library for $1 is missing. This installs it: rustup target add $1"
}

# get_rustup CHANNEL: installs rustup and this toolchain, only into RUSTUP_HOME and CARGO_HOME. RUSTUP_UPDATE_ROOT sets a mirror, which
# rustup itself also uses. The sum of a mirror's rustup-init is not verified, because a mirror may have a different version.
get_rustup() {
    local channel=$1 init=$own_rust/rustup-init protocols="=https" from=${RUSTUP_UPDATE_ROOT:-} machine url
    machine=$(uname -m)
    url=${from:-https://static.rust-lang.org/rustup}/$([[ -n $from ]] && echo dist || echo "archive/$RUSTUP")/$machine-unknown-linux-gnu/rustup-init
    # Plain HTTP is allowed only if RUSTUP_UPDATE_ROOT has an http:// URL.
    if [[ $from == http:* ]]; then protocols="=http"; fi
    echo "installing Rust $channel into $RUSTUP_HOME"
    mkdir -p "$own_rust"
    curl --proto "$protocols" --tlsv1.2 --silent --show-error --fail --location --retry 3 --output "$init" "$url" ||
        needs_fail "$url could not be downloaded; curl's reason is above. Any cargo of Rust $(oldest_rust) or newer in PATH will do"
    if [[ -z $from && $(sha256sum <"$init") != "${RUSTUP_SHA256[$machine]:-none}  -" ]]; then
        rm -f "$init"
        needs_fail "$url does not have the known sum, so it was not run. Any cargo of Rust $(oldest_rust) or newer in PATH will do"
    fi
    chmod +x "$init"
    "$init" --quiet -y --no-modify-path --profile minimal --default-toolchain "$channel" --component rustfmt,clippy >/dev/null ||
        needs_fail "rustup could not install Rust $channel into $RUSTUP_HOME; its reason is above"
    rm "$init"
}
