# shellcheck shell=bash
# Functions for the `run` of a case, which sources this first. This also changes to the case's folder:
#
#   serve [FLAG...]      starts the servers that the machine uses (tests/src/bin/stand-ins.rs)
#   user_data COMMAND... gives the machine what the command prints as its user-data
#   reads_the_store      puts the store into a worker's boot config, as in that of a control plane
#   metadata ITEM TEXT   sets an item of the metadata service
#   boot [OPTION...]     powers the machine on, with more options of systemd-nspawn; reboot restarts it
#   at_end COMMAND...    runs a command after the machine has ended
#   on COMMAND...        runs a command on the machine
#   fault SERVER FAULT, mend SERVER
#   asked SERVER TEXT    prints how many lines about this server in the log of requests have this text
#   until_true WHAT COMMAND...
#                        waits until the command succeeds, and then prints WHAT
#   expect FILE          waits until each line of the file, and of vm-tests/lib/expected (for every node), is true
#   expect_only FILE     waits until each line of the file is true
#
# Everything that these functions make ends with the case. If the case fails, they print logs.
set -euo pipefail

VM_TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
readonly VM_TESTS MACHINES=$VM_TESTS/../tests/machines ADDRESS=10.99.0.10
# The last four bytes of the MAC address are the bytes of the IP address, as in the instance's metadata (tests/src/machine_metadata.rs).
IFS=. read -ra octets <<<"$ADDRESS"
MAC=$(printf '02:00:%02x:%02x:%02x:%02x' "${octets[@]}")
readonly MAC
cd "$(dirname "$0")"
CASE=$(basename "$PWD")
# This timeout is generous, because only a case that fails waits so long.
readonly TIMEOUT=${VM_TESTS_TIMEOUT:-600}

# of_machine KEY [DEFAULT]: prints the value of KEY in the case's file `machine`.
of_machine() {
    local value
    value=$(sed -n "s/^$1=//p" machine)
    echo "${value:-${2:-}}"
}

CLOUD=$(of_machine cloud aws)
GROUP=$(of_machine group control-plane-eu-west-1a)
# The path of the program under test on the machine.
AGENT=$(of_machine agent /opt/kops/bin/nodeup)
MACHINE_NAME=$(of_machine hostname ip-10-99-0-10)
readonly CLOUD GROUP AGENT MACHINE_NAME

# Both names contain the process id of this script. After a kill, tests/machines/sweep finds the network and the folder by
# this id.
NET=ka$$-0
WORK=$(mktemp -d "/var/tmp/kops-agent-machine.$$-XXXXXX")
# MACHINE is the machine's own folder. Its files/ is the upper layer of the machine's root file system. WORLD is the folder of the servers.
MACHINE=$WORK/machine WORLD=$WORK/world
mkdir -p "$MACHINE/files" "$WORLD"
[[ -n ${VM_TESTS_BUILT:-} ]] || { echo "run it by vm-tests/run $CASE" >&2; exit 2; }
readonly BUILT=$VM_TESTS_BUILT
read -ra IN_IMAGE <<<"$(of_machine image)"
ROOT=$("$MACHINES/root" "$(of_machine suite)" "${IN_IMAGE[@]}")
# The lower layer of the machine's root file system.
ROOTFS=$ROOT/rootfs
LEADER='' STAND_INS=''

say() { echo "$SECONDS s: $*"; }

fail() {
    echo "$CASE: $*" >&2
    exit 1
}

# ---------------------------------------------------------------- cleanup

explain_machine() {
    if [[ -n $LEADER ]]; then
        echo "---- journal"
        on journalctl --no-pager --output=short-monotonic --priority=info --lines=100
        echo "---- units that failed"
        on systemctl --failed --no-pager --plain
        echo "---- what user-data said"
        on journalctl --no-pager --output=short-monotonic --unit user-data.service --lines=15
    fi
    # Leaves out systemd's progress lines. While a unit starts, systemd prints two of them each second.
    echo "---- console"
    grep -avE '^.{0,60} Job |^.{0,3}$' "$MACHINE/console.log" | tail -n 20
}

end_machine() {
    if [[ -f $MACHINE/cgroups ]]; then "$MACHINES/machine" down "$MACHINE"; fi
}

# Prints information about a failed case. The machine's own logs come last, because some systems keep only the end of a log.
explain() {
    set +e
    echo "---- the last requests"
    tail -n 40 "$WORLD/requests"
    explain_machine
}

AT_END=()
at_end() { AT_END+=("${*@Q}"); }

finish() {
    local status=$?
    trap - EXIT
    if ((status != 0)); then explain 2>&1; fi
    end_machine || true
    if [[ -n $STAND_INS ]]; then kill "$STAND_INS" 2>/dev/null || true; fi
    "$MACHINES/net" down "$NET" || true
    for command in "${AT_END[@]}"; do eval "$command" || true; done
    rm -rf "$WORK"
    exit "$status"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# until_true WHAT COMMAND...: retries COMMAND until it succeeds. The case fails after TIMEOUT.
until_true() {
    local what=$1 end=$((SECONDS + TIMEOUT))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || fail "waited in vain until $what"
        sleep 0.2
    done
    say "$what"
}

# ---------------------------------------------------------------- servers

# shellcheck disable=SC2120  # most cases have no more flags
serve() {
    local flags variable
    "$MACHINES/net" up "$NET" "m=$ADDRESS=$MAC"
    for address in $("$VM_TESTS_TARGET/stand-ins" addresses); do ip -n "$NET" address add "$address/16" dev machines; done
    read -ra flags <<<"$(of_machine serve)"
    flags+=("$@")
    case $(of_machine kops) in
    '') ;;
    # kOps 1.34 and 1.35 write the configuration format of containerd 1, and do not accept the newest Kubernetes.
    1.34.* | 1.35.*) flags+=(--kops "$(of_machine kops)" --kubelet "$VM_TESTS_KUBELET" --overlay "$VM_TESTS/lib/store-of-containerd-1") ;;
    *) flags+=(--kops "$(of_machine kops)") ;;
    esac
    [[ ! -d store ]] || flags+=(--overlay "$PWD/store")
    # The standard input of the stand-ins stays open until this shell ends, and then the stand-ins end.
    mkfifo "$WORK/open"
    setpriv --pdeathsig KILL ip netns exec "$NET" "$VM_TESTS_TARGET/stand-ins" serve "$WORLD" --cloud "$CLOUD" --address "$ADDRESS" \
        --hostname "$MACHINE_NAME" --kube "$VM_TESTS_KUBE" --mirror "$BUILT/downloads" --mirror "$BUILT/release" \
        --packages "$ROOT/packages" --overlay "$VM_TESTS/lib/store" "${flags[@]}" \
        <"$WORK/open" >"$WORLD/environment" 2>"$WORLD/stand-ins.log" &
    STAND_INS=$!
    exec 8>"$WORK/open"
    until grep -qsx '' "$WORLD/environment"; do
        kill -0 "$STAND_INS" 2>/dev/null || fail "the stand-ins ended: $(<"$WORLD/stand-ins.log")"
        sleep 0.05
    done
    # The variables for this store, which kOps exports in the user-data of machines.
    STORE=()
    while read -r variable; do
        case $variable in S3_*) STORE+=(--env "$variable") ;; esac
    done <"$WORLD/environment"
    CONF=$WORLD/machines/$GROUP/kube_env.yaml
    say "stand-ins serve"
}

user_data() { "$@" >"$WORLD/user-data"; }

# Makes the agent read the store. If the boot config contains servers, the agent reads its configuration from them, so this
# function removes them. The cluster's CA stays in the boot config, because a worker has no other source for it.
reads_the_store() {
    python3 - "$CONF" <<'END'
import sys, yaml
path = sys.argv[1]
config = yaml.safe_load(open(path))
config["ConfigServer"]["servers"] = []
yaml.safe_dump(config, open(path, "w"))
END
    sed -n 's/^CONFIG_BASE=/ConfigBase: /p' "$WORLD/environment" >>"$CONF"
}

metadata() {
    mkdir -p "$(dirname "$WORLD/metadata/$1")"
    printf %s "$2" >"$WORLD/metadata/$1"
}

# kops_user_data [FLAG...]: writes this machine's user-data, as kOps writes it.
kops_user_data() { user_data "$VM_TESTS/lib/kops-user-data" --conf "$CONF" --release "$BUILT/release" "$@"; }

# agent_user_data [FLAG...]: writes this machine's user-data with packaging/cloud-init.
agent_user_data() { user_data "$VM_TESTS/../packaging/cloud-init/user-data" --conf "$CONF" --release "$BUILT/release" "$@"; }

# Each server reads its fault file at each request. The rename keeps the server from reading a half-written file.
fault() { echo "${@:2}" >"$WORLD/fault.new" && mv "$WORLD/fault.new" "$WORLD/faults/$1"; }

mend() { rm "$WORLD/faults/$1"; }

asked() { grep -c -- "^$1 .*$2" "$WORLD/requests" || true; }

# asked_times COUNT SERVER TEXT: whether at least COUNT requests to SERVER have TEXT in their log lines.
asked_times() { (($(asked "$2" "$3") >= $1)); }

# ---------------------------------------------------------------- the machine

# file PATH: writes standard input to a file at PATH on the machine, before its first boot.
file() {
    mkdir -p "$(dirname "$MACHINE/files$1")"
    cat >"$MACHINE/files$1"
}

# Writes the files that a machine in this network needs in addition to its distribution.
install_network() {
    echo "nameserver 10.99.0.1" | file /etc/resolv.conf
    printf '127.0.0.1 localhost\n%s %s\n' "$ADDRESS" "$MACHINE_NAME" | file /etc/hosts
    echo "deb [trusted=yes] http://packages.example.com ./" | file /etc/apt/sources.list
    # chrony must not set the clock, because it is the host's.
    echo 'DAEMON_OPTS="-F 1 -x"' | file /etc/default/chrony
    # With this flag, kubelet also starts on cgroup v1, which the host may have.
    file /etc/systemd/system/kubelet.service.d/10-cgroups.conf <<'END'
[Service]
ExecStart=
ExecStart=/usr/local/bin/kubelet "$DAEMON_ARGS" --fail-cgroupv1=false
END
    # The first run of a control plane ends when its API server answers, or after two minutes. A stand-in for the
    # API server answers immediately.
    [[ $GROUP != control-plane-* ]] || service api-server
}

# service NAME: installs the service lib/NAME, which starts at boot.
service() {
    file "/usr/local/sbin/$1" <"$VM_TESTS/lib/$1"
    chmod 755 "$MACHINE/files/usr/local/sbin/$1"
    file "/etc/systemd/system/$1.service" <"$VM_TESTS/lib/$1.service"
    mkdir -p "$MACHINE/files/etc/systemd/system/multi-user.target.wants"
    ln -sf "../$1.service" "$MACHINE/files/etc/systemd/system/multi-user.target.wants/$1.service"
}

install_user_data() { service user-data; }

# trust FILE: makes the machine's image trust the CA in FILE.
trust() {
    mkdir -p "$MACHINE/files/etc/ssl/certs"
    cat "$ROOT/rootfs/etc/ssl/certs/ca-certificates.crt" "$1" >"$MACHINE/files/etc/ssl/certs/ca-certificates.crt"
}

# has_leader BEFORE: whether the machine's PID 1 is a process other than BEFORE.
has_leader() { LEADER=$("$MACHINES/machine" leader "$MACHINE") && [[ -n $LEADER && $LEADER != "$1" ]]; }

# shellcheck disable=SC2120
boot() {
    install_network
    # An image with cloud-init needs no stand-in for cloud-init.
    [[ " ${IN_IMAGE[*]} " == *" cloud-init "* ]] || install_user_data
    # user-data can write to the console only if the container has a terminal.
    "$MACHINES/machine" up "$NET-m" "$ROOTFS" "$MACHINE" --hostname="$MACHINE_NAME" --console=read-only "$@"
    until_true "the machine is on" has_leader ''
    until_true "systemd answers" on systemctl is-active sysinit.target
}

reboot() {
    local before=$LEADER
    # The connection to systemd may close before systemd's response.
    on systemctl reboot || true
    until_true "the machine is on again" has_leader "$before"
    until_true "systemd answers" on systemctl is-active sysinit.target
}

on() {
    nsenter --target "$LEADER" --mount --uts --ipc --net --pid --root --wd -- env --ignore-environment \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin timeout "$TIMEOUT" "$@" </dev/null
}

# ---------------------------------------------------------------- checks

property() { on systemctl show --value --property "$2" "$1"; }

# kubelet_has NAME=VALUE: whether kubelet's environment has this variable.
# shellcheck disable=SC2016  # the machine's shell expands it
kubelet_has() { on sh -c 'tr "\0" "\n" </proc/"$(systemctl show --property=MainPID --value kubelet)"/environ' | grep -x "$1" >/dev/null; }

# holds WORD...: whether a line of `expected` is true.
holds() {
    case $1 in
    # unit NAME ACTIVE-STATE [UNIT-FILE-STATE]: the unit has these states.
    unit) [[ $(property "$2" ActiveState) == "$3" && (-z ${4:-} || $(on systemctl is-enabled "$2") == "$4") ]] ;;
    # healthy PORT: the health check at this port succeeds. The state of kubelet's unit is not enough: if kubelet starts
    # before containerd serves, kubelet's unit is active for a moment, and then kubelet exits.
    healthy)
        # shellcheck disable=SC2016  # the machine's shell expands it
        on bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET /healthz HTTP/1.0\r\n\r\n" >&3 && head -n 1 <&3 | grep -q " 200 "' "$2" 2>/dev/null
        ;;
    # ran NAME: a oneshot service has succeeded in this boot. After its end, only the journal shows this success.
    ran) on journalctl --no-pager --output=cat --boot UNIT="$2" JOB_TYPE=start JOB_RESULT=done | grep . >/dev/null ;;
    # file PATH MODE: the file has this mode.
    file) [[ $(on stat --format=%a "$2") == "$3" ]] ;;
    no-file) on test ! -e "$2" ;;
    # empty FOLDER: the folder exists and is empty.
    empty) local contents && contents=$(on ls -A "$2") && [[ -z $contents ]] ;;
    # text PATH TEXT...: the file contains this text.
    text) on cat "$2" | grep -F -- "${*:3}" >/dev/null ;;
    # console TEXT...: the console contains this text. journal UNIT TEXT...: the journal of the unit contains this text.
    console) grep -qF -- "${*:2}" "$MACHINE/console.log" ;;
    journal) on journalctl --no-pager --output=cat --unit "$2" | grep -F -- "${*:3}" >/dev/null ;;
    # asked SERVER PATTERN...: at least one request matches the pattern. asked-times COUNT SERVER PATTERN...: exactly COUNT
    # requests match the pattern.
    asked) asked_times 1 "$2" "${*:3}" ;;
    asked-times) [[ $(asked "$3" "${*:4}") == "$2" ]] ;;
    # written-by VERSION: this version of kOps has written the store.
    written-by) on "$AGENT" status | grep -F "kOps $2, told by" >/dev/null ;;
    status) on "$AGENT" status ;;
    *) fail "no such word in expected: $*" ;;
    esac
}

expect() {
    expect_only "$VM_TESTS/lib/expected"
    expect_only "$1"
}

expect_only() {
    local line words
    while read -r line; do
        [[ -n $line && $line != \#* ]] || continue
        read -ra words <<<"$line"
        until_true "$line" holds "${words[@]}"
    done <"$1"
}
