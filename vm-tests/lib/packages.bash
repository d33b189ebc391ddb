# shellcheck shell=bash
# Functions for cases with a packaged program. They source lib/case.bash first:
#
#   RELEASED             the folder of signed repositories with two versions, 0.0.1 and 0.0.2, for `serve --mirror "$RELEASED"`
#   bake SCRIPT          runs a script in the machine's root before the boot, as for a golden image; /mnt is RELEASED
#   provision [FLAG]     makes the machine's root a golden image of version 0.0.1, by packaging/golden-image/provision
#   apt_source           adds the repository to the machine's apt, as docs/install/packages.md says
#   boot_config [FILE]   prints user-data that writes the boot config, and the variables of the store to FILE
#   apt COMMAND...       runs apt-get on the machine
#   has_version V        fails unless this version of the package is installed, with its own program. `package_version` prints the
#                        installed version: dpkg's, unless the case defines its own function
#   untouched_by_upgrades  makes a node by the installed package, 0.0.1. The case's `upgrade`, `downgrade` and `reinstall` then change
#                        the package during a run, during a verification, and while units run. None of these may be restarted
#   on_file PATH         writes standard input to a file of the running machine
#   since UNIT...        prints which process of a unit runs, and since when; `unchanged WHAT BEFORE UNIT...` fails if that has changed

RELEASED=$("$VM_TESTS/lib/packages" "$KOPS_AGENT")
# The spec in the store, which `kops update cluster` writes.
# shellcheck disable=SC2034  # cases use it
readonly SPEC=$WORLD/store/clusters.example.com/demo.example.com/cluster-completed.spec
# The units that an upgrade must not restart.
# shellcheck disable=SC2034
readonly RUNNING=(containerd.service kubelet.service)

bake() {
    local at=$WORK/image
    mkdir -p "$MACHINE/work" "$at"
    # shellcheck disable=SC2016  # the inner shell expands these
    unshare --mount sh -euc '
        mount -t overlay -o "lowerdir=$1,upperdir=$2/files,workdir=$2/work" image "$3"
        mount --bind /proc "$3/proc"
        mount --bind /dev "$3/dev"
        mount --bind "$4" "$3/mnt"
        exec chroot "$3" env --ignore-environment PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive sh -euc "$5"' \
        sh "$ROOTFS" "$MACHINE" "$at" "$RELEASED" "$1"
    say "the image is baked"
}

# deb V: prints the path below RELEASED of the .deb of version V. RELEASED contains packages of this architecture only.
deb() { (cd "$RELEASED" && echo apt/pool/main/kops-agent_"$1"-1_*.deb); }

# At the first boot, systemd applies its presets, which would enable networkd. networkd is masked, because this machine's network is already
# configured.
# shellcheck disable=SC2120  # an image for machines without kOps' user-data needs no flag
provision() {
    local folder
    bake "cp /mnt/$(deb 0.0.1) /root/kops-agent.deb
        set -- $* /root/kops-agent.deb
        $(<"$VM_TESTS/../packaging/golden-image/provision")
        systemctl --quiet mask systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service"
    for folder in opt/kops etc/kubernetes var/lib/kops-agent; do [[ ! -e $MACHINE/files/$folder ]] || fail "the image has /$folder"; done
}

apt_source() {
    install -D -m 0644 "$RELEASED/kops-agent.asc" "$MACHINE/files/etc/apt/keyrings/kops-agent.asc"
    # apt uses the second mirror, because cases make the first one fail.
    echo "deb [signed-by=/etc/apt/keyrings/kops-agent.asc] http://mirror-2.example.com/apt stable main" | file /etc/apt/sources.list.d/kops-agent.list
}

# The agent may have dpkg's lock, so apt waits for the lock.
apt() { on env DEBIAN_FRONTEND=noninteractive apt-get -qq --yes -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout="$TIMEOUT" "$@"; }

# shellcheck disable=SC2016  # the machine's shell expands these
on_file() { on sh -c 'mkdir -p "$(dirname "$1")" && printf "%s\n" "$2" >"$1"' sh "$1" "$(cat)"; }

# If FILE is not given, the user-data writes the variables to the file to which kOps' boot script writes them.
boot_config() {
    local variables=${1:-/etc/sysconfig/kops-configuration}
    printf '#!/bin/sh\nset -eu\numask 077\nmkdir -p /opt/kops/conf %s\n' "${variables%/*}"
    printf "cat >/opt/kops/conf/kube_env.yaml <<'KUBE_ENV'\n%s\nKUBE_ENV\n" "$(<"$CONF")"
    printf "cat >%s <<'VARIABLES'\n%s\nVARIABLES\n" "$variables" "$(environment)"
}

# Prints the variables for the package's units, one per line.
environment() {
    grep '^S3_' "$WORLD/environment"
    echo AWS_REGION=eu-west-1
    # Without kops-controller, no server gives disruption slots, so pacing is off.
    echo KOPS_AGENT_MAX_UNAVAILABLE=0
}

since() { on systemctl show --property=Id,ActiveState,MainPID,InvocationID,ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic "$@"; }

unchanged() {
    local what=$1 before=$2 now
    shift 2
    now=$(since "$@")
    [[ $now == "$before" ]] || fail "$what: $(diff <(echo "$before") <(echo "$now"))"
    say "$what: nothing of $* was started anew"
}

# shellcheck disable=SC2016  # dpkg's variable
package_version() { on dpkg-query --show --showformat='${Version}' kops-agent; }

has_version() {
    local package program
    package=$(package_version)
    program=$(on tail --bytes=6 /usr/bin/kops-agent)
    [[ $package == "$1"-1 && $program == "$1" ]] || fail "the package is $package, its program $program, and $1 is wanted"
}

# runs_replaced UNIT: whether UNIT still runs a program whose file was replaced.
runs_replaced() { [[ $(on readlink "/proc/$(property "$1" MainPID)/exe") == "/usr/bin/kops-agent (deleted)" ]]; }

# has_verified: whether a verification has ended and has found no drift.
has_verified() { [[ $(property kops-agent-verify.service ActiveState) == inactive && $(property kops-agent-verify.service ExecMainStatus) == 0 ]]; }

untouched_by_upgrades() {
    local before all=(kops-agent.service kops-agent-verify.timer kops-agent-metrics.timer)
    # A run that waits for a download continues while the package is upgraded.
    fault mirror silent
    on systemctl start --no-block kops-agent.service
    until_true "the run downloads" asked_times 1 mirror held
    before=$(since "${all[@]}")
    upgrade
    has_version 0.0.2
    unchanged "an upgrade during a run" "$before" "${all[@]}"
    runs_replaced kops-agent.service || fail "the run that is under way is not the old program's"
    mend mirror
    expect_only "$VM_TESTS/lib/packaged"

    all+=("${RUNNING[@]}")
    before=$(since "${all[@]}")
    downgrade
    has_version 0.0.1
    upgrade
    reinstall
    has_version 0.0.2
    unchanged "a downgrade, an upgrade and a reinstallation" "$before" "${all[@]}"

    # A verification also continues while the package is upgraded.
    downgrade
    # With this timeout, the verification lasts longer than the upgrade.
    printf '[Service]\nEnvironment="ARGUMENTS=--store-timeout 1800"\n' | on_file /run/systemd/system/kops-agent-verify.service.d/patient.conf
    on systemctl daemon-reload
    fault store silent
    on systemctl start --no-block kops-agent-verify.service
    until_true "the verification waits for the store" asked_times 1 store held
    all+=(kops-agent-verify.service)
    before=$(since "${all[@]}")
    upgrade
    has_version 0.0.2
    unchanged "an upgrade during a verification" "$before" "${all[@]}"
    runs_replaced kops-agent-verify.service || fail "the verification that is under way is not the old program's"
    mend store
    until_true "the verification has come to its end" has_verified
    on rm /run/systemd/system/kops-agent-verify.service.d/patient.conf
    on systemctl daemon-reload
}
