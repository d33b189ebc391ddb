#!/bin/sh
# Makes this machine a node of its cluster: downloads kops-agent, verifies it, and installs its unit, which also runs at later
# boots. packaging/cloud-init/user-data replaces the placeholders, which stand between two @.
set -euf
umask 022

# Per architecture: URLs of the program, its SHA-256 sum, and the sum of its .xz file.
agent_amd64='@URLS_AMD64@'
sha256_amd64='@SHA256_AMD64@'
xz_amd64='@XZ_SHA256_AMD64@'
agent_arm64='@URLS_ARM64@'
sha256_arm64='@SHA256_ARM64@'
xz_arm64='@XZ_SHA256_ARM64@'
# Limits for each mirror: seconds without data, seconds per download, and MiB per file.
silence=60 longest=900 largest=64

say() { printf 'kops-agent: %s\n' "$*"; }

fail() {
    say "$*" >&2
    exit 1
}

# keep NAME VALUE: stores the variable in /etc/environment, as kOps' own script does for proxies. containerd and the agent's units
# read this file at every start.
keep() {
    # The new file replaces the old one in one step, so that a power cut cannot leave a part of a file.
    new=/etc/environment.kops-agent
    if { [ ! -e /etc/environment ] || cp -p /etc/environment "$new"; } && with_variable "$1" "$2" >"$new" && sync && mv -f "$new" /etc/environment; then
        return
    fi
    rm -f "$new"
    fail "$1 cannot be kept in /etc/environment, where containerd finds it: is /etc read-only, or its disk full?"
}

# with_variable NAME VALUE: prints /etc/environment with this variable set. grep ends with 1 if it selects no line.
with_variable() {
    if [ -e /etc/environment ]; then grep -v "^$1=" /etc/environment || [ $? -eq 1 ] || return 1; fi
    printf '%s=%s\n' "$1" "$2"
}

# proxies: prints the proxies in /etc/environment, one per line. Reads the file as pam_env does: # begins a comment anywhere, a
# backslash joins the next line, a leading `export ` is ignored, and quotes around a value are removed.
proxies() {
    sed -e ':line' -e 's/#.*//' -e '/\\[[:blank:]]*$/{' -e 's/\\[[:blank:]]*$//' -e '$!{' -e 'N' -e 's/\n//' -e 'b line' -e '}' -e '}' \
        -e 's/^[[:blank:]]*//' -e 's/^export //' -e 's/[[:blank:]]*$//' \
        -e "/^[^=]*=[\"']/{" -e "s/[\"']\$//" -e "s/[\"']//" -e '}' /etc/environment | grep -iE '^(https?|no)_proxy='
}

# tell_systemd: gives the stored proxies to all units, as kOps' own script does. kubelet needs them, because its credential
# providers send requests to registries.
tell_systemd() {
    folder=/etc/systemd/system.conf.d
    new=$folder/kops-agent-proxy.new
    {
        mkdir -p "$folder" && {
            echo '[Manager]'
            proxies | sed 's/["\\]/\\&/g; s/.*/DefaultEnvironment="&"/'
        } >"$new"
    } || fail "proxies cannot be written to $folder, where units find them: is /etc read-only, or its disk full?"
    if cmp -s "$new" "$folder/kops-agent-proxy.conf"; then
        rm -f "$new"
        return
    fi
    sync
    mv -f "$new" "$folder/kops-agent-proxy.conf"
    if command -v systemctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then systemctl daemon-reexec; fi
}

@ENVIRONMENT@

# Container-Optimized OS mounts /opt read-only, but allows programs in /var/lib/toolbox. Flatcar may also have /var/lib/toolbox,
# so only /etc/os-release shows which system this is.
install=/opt/kops
if grep -qE '^ID="?cos"?$' /etc/os-release 2>/dev/null; then install=/var/lib/toolbox/kops; fi
program=$install/bin/kops-agent
conf=$install/conf/kube_env.yaml

case $(uname -m) in
x86_64 | amd64) urls=$agent_amd64 sha256=$sha256_amd64 xz_sha256=$xz_amd64 ;;
aarch64 | arm64) urls=$agent_arm64 sha256=$sha256_arm64 xz_sha256=$xz_arm64 ;;
*) fail "no kops-agent was given for machines of the architecture $(uname -m)" ;;
esac
[ -n "$urls" ] || fail "this user-data has no kops-agent for $(uname -m): make it with --sha256-amd64 or --sha256-arm64 as well"

# has_sum FILE SUM: whether the file exists and has this SHA-256 sum.
has_sum() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]; }

# checked FILE: whether FILE is the kops-agent of this user-data.
checked() { has_sum "$1" "$sha256"; }

# bounded COMMAND...: runs COMMAND with a limit on the size of its files. `ulimit -f` of sh counts blocks of 512 bytes. bash counts
# blocks of 1024 bytes, so the limit is twice as high there.
bounded() { (ulimit -f $((largest * 2048)) && exec "$@"); }

# within COMMAND...: like bounded, and ends COMMAND after $longest seconds if `timeout` is installed.
within() {
    if command -v timeout >/dev/null 2>&1; then bounded timeout "$longest" "$@"; else bounded "$@"; fi
}

# fetch URL FILE: downloads URL to FILE. Returns 1 for an HTTP error (no such file), and 2 for any other failure.
fetch() {
    if command -v curl >/dev/null 2>&1; then
        bounded curl --fail --silent --show-error --location --connect-timeout 20 --speed-limit 1024 --speed-time "$silence" \
            --max-time "$longest" --max-filesize $((largest * 1048576)) --output "$2" "$1" || { [ $? -eq 22 ] && return 1; return 2; }
    elif command -v wget >/dev/null 2>&1; then
        # wget must try only once, as curl does. By default, wget tries a silent server twenty times.
        within wget -q -t 1 -T "$silence" -O "$2" "$1" || { [ $? -eq 8 ] && return 1; return 2; }
    else
        fail "neither curl nor wget is installed: use an image that has one of them, or one with the kops-agent package"
    fi
}

# differs URL SUM: prints that the file at the URL lacks this sum.
differs() { say "what $1 serves does not have the SHA-256 sum $2"; }

# from URL: downloads and verifies the program. If this machine has xz, uses the .xz file, and unpacks this file only if its sum is
# right.
from() {
    new=$program.new
    rm -f "$new" "$new.xz"
    if [ -n "$xz_sha256" ] && command -v xz >/dev/null 2>&1; then
        fetched=0
        fetch "$1.xz" "$new.xz" || fetched=$?
        # If the download failed without an HTTP error, the mirror is not asked for the uncompressed program.
        if [ "$fetched" = 2 ]; then return 1; fi
        if [ "$fetched" = 0 ]; then
            if has_sum "$new.xz" "$xz_sha256"; then
                if bounded xz -d -f --memlimit-decompress=64MiB "$new.xz" && checked "$new"; then return; fi
            else
                differs "$1.xz" "$xz_sha256"
            fi
        fi
    fi
    fetch "$1" "$new" || return 1
    checked "$new" || {
        differs "$1" "$sha256"
        return 1
    }
}

download() {
    pause=2
    while :; do
        for url in $urls; do
            say "downloading $url"
            # Inside an `if`, `set -e` does not apply, so `from` checks each step itself.
            if from "$url"; then
                chmod 0755 "$program.new"
                mv -f "$program.new" "$program"
                return
            fi
            rm -f "$program.new" "$program.new.xz"
        done
        say "no mirror has delivered kops-agent; trying again in $pause s"
        sleep "$pause"
        pause=$((pause * 2))
        if [ "$pause" -gt 60 ]; then pause=60; fi
    done
}

if command -v systemd-machine-id-setup >/dev/null 2>&1; then
    systemd-machine-id-setup >/dev/null 2>&1 || say "systemd-machine-id-setup failed: check that this image has no machine-id of its own"
fi

mkdir -p "$install/bin" "$install/conf" || fail "$install cannot be made: is its disk read-only, or full?"
# If a folder has the name of one of these files, `mv` would move the file into the folder.
for file in "$program" "$conf"; do
    if [ -d "$file" ]; then fail "$file is a folder: use an image without it"; fi
done
say "writing $conf"
umask 077
cat >"$conf.new" <<'@END_OF_CONF@'
@CONF@
@END_OF_CONF@
mv -f "$conf.new" "$conf"
umask 022

if checked "$program"; then
    # In an image, the program may lack execute permission.
    chmod 0755 "$program"
    say "$program is here already"
else
    download
    say "installed $program"
fi

# New files get the SELinux label of their folder, but the policy has different labels for programs below /opt.
if command -v restorecon >/dev/null 2>&1; then
    restorecon -R -i "$install" /etc/environment /etc/systemd/system.conf.d || say "restorecon failed: restorecon -R -v $install tells why"
fi

say "installing its unit, which makes this machine a node: journalctl -fu kops-configuration"
cd "$install/bin"
exec "$program" --install-systemd-unit --conf="$conf" --v=@VERBOSITY@
