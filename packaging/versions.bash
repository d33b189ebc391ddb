# shellcheck shell=bash
# Checks versions of kOps, which become folders of a mirror and part of a script. Knows which of kOps' own programs the machines of
# a version download. Scripts source this, and then call:
#
#   is_version V         whether V is a version such as 1.36.0 or 1.37.0-alpha.1
#   is_too_old V         whether kops-agent rejects the stores of kOps V
#   is_not_known_yet V   whether kOps V is newer than kops-agent knows
#   beside_nodeup V      prints the programs that machines of kOps V download from nodeup's folder of the mirror, besides nodeup
#
# All releases have the layout binaries/kops/V/linux/ARCH/PROGRAM, and the SHA-256 of a program in PROGRAM.sha256. Machines of 1.36
# and before download nodeup, and later ones nodeup.xz. Source: pkg/model/resources/nodeup.go, pkg/assets/builder.go,
# pkg/nodemodel/wellknownassets/kopsassets.go and pkg/nodemodel/nodeupconfigbuilder.go at v1.34.3, v1.35.2, v1.36.2 and 1.37-alpha.

is_version() { [[ $1 =~ ^[0-9]+\.[0-9]+\.[0-9]+([-+.][0-9A-Za-z.+-]+)?$ ]]; }

# is_before V MAJOR.MINOR: whether version V is older than this minor version.
is_before() {
    local major=${1%%.*} minor=${1#*.}
    minor=${minor%%.*}
    ((10#$major < ${2%.*} || (10#$major == ${2%.*} && 10#$minor < ${2#*.})))
}

# Must match OLDEST_SUPPORTED_MINOR and NEWEST_KNOWN_MINOR in agent/spec/src/kops_release.rs.
is_too_old() { is_before "$1" 1.34; }
is_not_known_yet() { ! is_before "$1" 1.38; }

beside_nodeup() {
    if is_before "$1" 1.36; then
        echo protokube channels
    elif is_before "$1" 1.37; then
        echo protokube
    fi
}
