# Functions for the scripts in this folder. A script puts the example cluster's store into a server, and checks that kops-agent
# reads the same store content from the server as from a folder. Each script first sets `name` to its own name. Then it sources
# this file with the script's arguments.
# shellcheck shell=bash disable=SC2034,SC2154
set -euo pipefail

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
built=${CARGO_TARGET_DIR:-$checkout/target}/debug
agent=$(realpath "${1:-$built/kops-agent}")
cluster=demo.example.com
caches=${XDG_CACHE_HOME:-$HOME/.cache}/kops-agent

work=$(mktemp -d)
started=()
finish() {
    local pid
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap finish EXIT
cd "$work"
"$built/example-store" store >/dev/null
folder=store/store/clusters.example.com

free_port() {
    python3 -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# answers URL: waits until a server answers at URL.
answers() {
    for _ in $(seq 200); do
        curl --silent --output /dev/null "$@" && return
        sleep 0.1
    done
    echo "$name: nothing answers at ${*: -1}" >&2
    return 1
}

# render MACHINE BASE: renders a machine of the store at BASE. Requests for the example's own URLs are served from the folder
# (--store-mirror).
render() {
    "$agent" render --store-timeout 5 --store-mirror "s3://clusters.example.com=$work/$folder" --conf "store/machines/$1/kube_env.yaml" \
        --facts "store/machines/$1/facts.yaml" --config-base "$2"
}

# is_as_in_the_folder BASE: checks that `render` prints the same for the store at BASE as for the example store in the local folder.
is_as_in_the_folder() {
    local machine
    for machine in store/machines/*; do
        machine=${machine##*/}
        render "$machine" "s3://clusters.example.com/$cluster" | sed "s,s3://clusters.example.com,@BASE@,g" >of-folder
        [[ -s of-folder ]]
        render "$machine" "$1/$cluster" | sed "s,$1\\|s3://clusters.example.com,@BASE@,g" | diff of-folder -
    done
}

# lists_groups BASE: fails unless `config derive` lists the groups of the cluster in BASE.
lists_groups() {
    "$agent" config derive --instance-group none --store-mirror "s3://clusters.example.com=$work/$folder" \
        --config-base "$1/$cluster" >said 2>&1 || true
    if ! grep -qF "it has: control-plane-eu-west-1a, nodes" said; then
        echo "$name: the groups of the cluster are not listed:" >&2
        cat said >&2
        exit 1
    fi
}

# fails_with TEXT URL: checks that `render` for a worker fails with the store at URL, and that its output contains TEXT.
fails_with() {
    if render nodes "$2" >said 2>&1 || ! grep -qF "$1" said; then
        echo "$name: $2 should have failed with: $1" >&2
        cat said >&2
        exit 1
    fi
}

done_well() {
    echo "$name: machines read and list the same as from a folder, and missing objects are reported"
}
