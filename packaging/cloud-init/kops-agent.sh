#!/bin/sh
# Makes this machine a node of its cluster: downloads kops-agent, checks it, and leaves the rest to its unit, which also
# runs at every later boot. packaging/cloud-init/user-data puts in what stands between @.
set -euf
umask 022

# Where the program is, its sum, and the sum of it compressed.
agent_amd64='@URLS_AMD64@'
sha256_amd64='@SHA256_AMD64@'
xz_amd64='@XZ_SHA256_AMD64@'
agent_arm64='@URLS_ARM64@'
sha256_arm64='@SHA256_ARM64@'
xz_arm64='@XZ_SHA256_ARM64@'
# What a mirror may cost before the next one is asked: seconds of silence, seconds of a download, and mebibytes.
silence=60 longest=900 largest=64

say() { printf 'kops-agent: %s\n' "$*"; }

fail() {
    say "$*" >&2
    exit 1
}

# keep NAME VALUE: has containerd and the agent's units see the variable, now and at later boots, as kOps' own script does for
# proxies.
keep() {
    # Beside it and renamed: a power cut leaves the old file or the new one.
    new=/etc/environment.kops-agent
    if { [ ! -e /etc/environment ] || cp -p /etc/environment "$new"; } && with_variable "$1" "$2" >"$new" && sync && mv -f "$new" /etc/environment; then
        return
    fi
    rm -f "$new"
    fail "$1 cannot be kept in /etc/environment, where containerd finds it: is /etc read-only, or its disk full?"
}

# with_variable NAME VALUE: what is in /etc/environment, and the variable. grep ends with 1 where no line is left.
with_variable() {
    if [ -e /etc/environment ]; then grep -v "^$1=" /etc/environment || [ $? -eq 1 ] || return 1; fi
    printf '%s=%s\n' "$1" "$2"
}

# proxies: those of /etc/environment, a line each, as pam_env reads them there: comments begin with # anywhere, a backslash joins the
# next line, `export ` is passed over, and of a value that begins with a quote the quotes at both ends are not its own.
proxies() {
    sed -e ':line' -e 's/#.*//' -e '/\\[[:blank:]]*$/{' -e 's/\\[[:blank:]]*$//' -e '$!{' -e 'N' -e 's/\n//' -e 'b line' -e '}' -e '}' \
        -e 's/^[[:blank:]]*//' -e 's/^export //' -e 's/[[:blank:]]*$//' \
        -e "/^[^=]*=[\"']/{" -e "s/[\"']\$//" -e "s/[\"']//" -e '}' /etc/environment | grep -iE '^(https?|no)_proxy='
}

# tell_systemd: has all units see the proxies that were kept, kubelet's for one, whose credential providers ask registries; kOps' own
# script does so, too.
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

# Container-Optimized OS mounts /opt read-only, and lets programs run from /var/lib/toolbox. Flatcar has that folder, too, from the first
# use of its `toolbox` on.
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

# has_sum FILE SUM
has_sum() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d ' ' -f 1)" = "$2" ]; }

# checked FILE: whether it is the kops-agent that this user-data names.
checked() { has_sum "$1" "$sha256"; }

# bounded COMMAND...: it may write no file that is larger, in sh's blocks of 512 bytes; bash's own are twice as large.
bounded() { (ulimit -f $((largest * 2048)) && exec "$@"); }

# within COMMAND...: ends it after the longest time, where there is a program for that.
within() {
    if command -v timeout >/dev/null 2>&1; then bounded timeout "$longest" "$@"; else bounded "$@"; fi
}

# fetch URL FILE: 1 if the server has no such file, 2 for all else.
fetch() {
    if command -v curl >/dev/null 2>&1; then
        bounded curl --fail --silent --show-error --location --connect-timeout 20 --speed-limit 1024 --speed-time "$silence" \
            --max-time "$longest" --max-filesize $((largest * 1048576)) --output "$2" "$1" || { [ $? -eq 22 ] && return 1; return 2; }
    elif command -v wget >/dev/null 2>&1; then
        # One try, as curl has: by itself it asks a server that is silent twenty times.
        within wget -q -t 1 -T "$silence" -O "$2" "$1" || { [ $? -eq 8 ] && return 1; return 2; }
    else
        fail "neither curl nor wget is installed: use an image that has one of them, or one with the kops-agent package"
    fi
}

# differs URL SUM
differs() { say "what $1 serves does not have the SHA-256 sum $2"; }

# from URL: downloads the program, compressed where this machine can unpack it, and checks it. Nothing is unpacked that has another
# sum than the one that is known.
from() {
    new=$program.new
    rm -f "$new" "$new.xz"
    if [ -n "$xz_sha256" ] && command -v xz >/dev/null 2>&1; then
        fetched=0
        fetch "$1.xz" "$new.xz" || fetched=$?
        # A mirror that does not answer is not asked again for the uncompressed one.
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
            # An `if` turns off `set -e` within `from`, which therefore looks at each step itself.
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
# What is moved there would land in it.
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
    # An image may have it copied without the bit by which it is run.
    chmod 0755 "$program"
    say "$program is here already"
else
    download
    say "installed $program"
fi

# What is made has the label of its folder, and SELinux's policy has others for programs below /opt.
if command -v restorecon >/dev/null 2>&1; then
    restorecon -R -i "$install" /etc/environment /etc/systemd/system.conf.d || say "restorecon failed: restorecon -R -v $install tells why"
fi

say "installing its unit, which makes this machine a node: journalctl -fu kops-configuration"
cd "$install/bin"
exec "$program" --install-systemd-unit --conf="$conf" --v=@VERBOSITY@
