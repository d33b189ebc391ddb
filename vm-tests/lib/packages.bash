# shellcheck shell=bash
# What the cases with a packaged program call, besides lib/case.bash, which is sourced before this:
#
#   RELEASED             the signed repositories of two versions, 0.0.1 and 0.0.2, as packaging/repositories makes them; `serve --mirror "$RELEASED"`
#   bake SCRIPT          runs it in the machine's root before that boots, as a golden image is made; /mnt is RELEASED
#   apt_source           has the machine know the repository for apt, as docs/install/packages.md says
#   reads_the_store      gives a worker's boot config the store, which a control plane's has
#   boot_config [FILE]   prints user-data that leaves the boot config and the variables of the store on the machine, these in a file
#   apt COMMAND...       runs apt-get on the machine
#   has_version V        fails unless the package of this version is installed, with its own program; `package_version` says what is, dpkg's if the
#                        case has none of its own
#   untouched_by_upgrades  makes a node by the package that is there, 0.0.1, and has the case's `upgrade`, `downgrade` and `reinstall` change it under a run,
#                        under a verification, and under what runs: nothing of that may be started anew
#   on_file PATH         writes standard input to a file of the running machine
#   since UNIT...        which process of a unit runs, and since when; unchanged WHAT BEFORE UNIT... holds that against the present

RELEASED=$("$VM_TESTS/lib/packages" "$KOPS_AGENT")
# What `kops update cluster` writes.
# shellcheck disable=SC2034  # cases use it
readonly SPEC=$WORLD/store/clusters.example.com/demo.example.com/cluster-completed.spec
# The units that must not be touched.
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

# The package of a version for dpkg, below RELEASED; those of other architectures are not there.
deb() { (cd "$RELEASED" && echo apt/pool/main/kops-agent_"$1"-1_*.deb); }

apt_source() {
    install -D -m 0644 "$RELEASED/kops-agent.asc" "$MACHINE/files/etc/apt/keyrings/kops-agent.asc"
    # The other mirror may be made to fail.
    echo "deb [signed-by=/etc/apt/keyrings/kops-agent.asc] http://mirror-2.example.com/apt stable main" | file /etc/apt/sources.list.d/kops-agent.list
}

# The agent may have dpkg at work.
apt() { on env DEBIAN_FRONTEND=noninteractive apt-get -qq --yes -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout="$TIMEOUT" "$@"; }

# shellcheck disable=SC2016  # the machine's shell expands these
on_file() { on sh -c 'mkdir -p "$(dirname "$1")" && printf "%s\n" "$2" >"$1"' sh "$1" "$(cat)"; }

# One that names servers has these asked. The authority of the cluster, which is there too, is nowhere else for a worker.
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

# Where no file is named it is that of kOps' script.
boot_config() {
    local variables=${1:-/etc/sysconfig/kops-configuration}
    printf '#!/bin/sh\nset -eu\numask 077\nmkdir -p /opt/kops/conf %s\n' "${variables%/*}"
    printf "cat >/opt/kops/conf/kube_env.yaml <<'KUBE_ENV'\n%s\nKUBE_ENV\n" "$(<"$CONF")"
    printf "cat >%s <<'VARIABLES'\n%s\nVARIABLES\n" "$variables" "$(environment)"
}

# What units of the package have in their environment, a line a variable.
environment() {
    grep '^S3_' "$WORLD/environment"
    echo AWS_REGION=eu-west-1
    # There is no kops-controller that could say that it gives no slots.
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

# runs_replaced UNIT: whether the program that a unit runs is not the one any more that has its name.
runs_replaced() { [[ $(on readlink "/proc/$(property "$1" MainPID)/exe") == "/usr/bin/kops-agent (deleted)" ]]; }

# has_verified: whether a verification has come to its end, and has found the node as it should be.
has_verified() { [[ $(property kops-agent-verify.service ActiveState) == inactive && $(property kops-agent-verify.service ExecMainStatus) == 0 ]]; }

untouched_by_upgrades() {
    local before all=(kops-agent.service kops-agent-verify.timer kops-agent-metrics.timer)
    # A run that downloads goes on while the package is upgraded.
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

    # So does a verification.
    downgrade
    # Longer than an upgrade takes.
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
