# shellcheck shell=bash
# Functions for the `run` of a case with a virtual machine, which QEMU boots. It is sourced after lib/case.bash, and replaces some
# of its functions:
#
#   network              adds a tap device for the machine, and a DHCP server, to the network; after `serve`
#   power_on [FLAG...]   boots the machine of the folder VM, with flags of `vm boot`
#   on COMMAND...        runs a command on it, by QEMU's guest agent
#   agent VERB...        runs the agent on it, with the variables of the store
#   console, journal REGEX [COUNT]
#                        waits until its serial console, or its journal, has so many lines that match
#   power_cut            cuts its power
#   restart [FLAG...]    shuts it down, and boots it again
VM_IMAGE_FLAGS=${VM_IMAGE_FLAGS:-}
EMULATOR=$("$VM_TESTS/qemu/emulator")
# shellcheck disable=SC2086  # flags are words
IMAGE=$("$VM_TESTS/qemu/image" $VM_IMAGE_FLAGS)
readonly EMULATOR IMAGE
# An emulated machine on a busy host may be very slow. Only a case that fails waits until this timeout.
readonly VM_TIMEOUT=1200
VM=$WORK/machine DHCP=''

vm() {
    local verb=$1
    shift
    "$VM_TESTS/qemu/vm" "$verb" "$VM" "$@"
}

network() {
    # Only containers use this namespace.
    ip netns delete "$NET-m"
    ip -n "$NET" tuntap add dev vm mode tap
    ip -n "$NET" link set vm master machines up
    # dnsmasq only serves DHCP, because the stand-ins answer DNS.
    setpriv --pdeathsig KILL ip netns exec "$NET" "$VM_TESTS/qemu/in" "$EMULATOR" dnsmasq --keep-in-foreground --user=root --conf-file=/dev/null \
        --port=0 --interface=machines --bind-interfaces --dhcp-authoritative --dhcp-range=10.99.0.0,static,255.255.0.0,12h \
        --dhcp-host="$MAC,$ADDRESS" --dhcp-option=option:router,10.99.0.1 --dhcp-option=option:dns-server,10.99.0.1 \
        --dhcp-leasefile="$WORK/leases" --pid-file= --log-facility=- 2>"$WORK/dhcp.log" &
    DHCP=$!
}

# shellcheck disable=SC2120  # most machines are booted without flags
power_on() { vm boot --emulator "$EMULATOR" --image "$IMAGE" --net "$NET" --mac "$MAC" "$@"; }
power_cut() { vm cut; }
# shellcheck disable=SC2120
restart() {
    # The reboot may close the connection to the machine before systemctl's result arrives.
    on systemctl --no-block reboot || true
    vm off --within "$VM_TIMEOUT"
    power_on "$@"
}
on() { vm exec "$@"; }

agent() {
    local word variables=(AWS_REGION=eu-west-1)
    for word in "${STORE[@]}"; do
        if [[ $word != --env ]]; then variables+=("$word"); fi
    done
    on env "${variables[@]}" "$AGENT" "$1" --conf /opt/kops/conf/kube_env.yaml "${@:2}"
}

console() { vm until console.log "$1" --count "${2:-1}" --within "$VM_TIMEOUT"; }
journal() { vm until journal.log "$1" --count "${2:-1}" --within "$VM_TIMEOUT"; }

# ---------------------------------------------------------------- cleanup

explain_machine() {
    local log
    for log in qemu console journal; do
        echo "---- $log"
        tail -n 60 "$VM/$log.log"
    done
}

end_machine() {
    local folder
    for folder in "$WORK"/*/pid; do
        [[ -e $folder ]] || continue
        "$VM_TESTS/qemu/vm" cut "$(dirname "$folder")"
    done
    if [[ -n $DHCP ]]; then kill "$DHCP" 2>/dev/null || true; fi
}
