# What the benchmarks of this folder share: a mirror with programs as large as Kubernetes', and measuring.
# shellcheck shell=bash disable=SC2154,SC2034
# Its users set `targets`, `work` (a folder of their own), `LOG`, and `AT`: what a measured command is run by.

# ---------------------------------------------------------------- what is downloaded

# megabytes NAME: how large a program of a node is, about.
megabytes() {
    case $1 in
    kubelet | kubectl) echo 58 ;;
    containerd) echo 44 ;;
    ctr | containerd-stress) echo 22 ;;
    ecr-credential-provider*) echo 16 ;;
    runc*) echo 12 ;;
    containerd-shim*) echo 8 ;;
    *) echo 5 ;;
    esac
}

# grow FILE: machine code of this machine in the place of a stand-in, as large as the real one and packing as well.
offset=0
grow() {
    local size
    size=$(megabytes "$(basename "$1")")
    offset=$(((offset + 7) % 40))
    # tail ends with a broken pipe once head has enough.
    { tail -c +$((offset * 1048576)) "$work/pool" || true; } | head -c $((size * 1048576)) >"$1.new"
    chmod --reference="$1" "$1.new"
    mv "$1.new" "$1"
}

# fill_mirror ARCHITECTURE: what machines of it download.
fill_mirror() {
    local other=amd64
    [[ $1 == amd64 ]] && other=arm64
    "$targets/debug/mirror" stand-ins "$work/files"
    find "$work/files" -type f -path "*$other*" -delete
    { cat "$targets"/debug/mirror "$targets"/debug/example-store /usr/bin/* 2>/dev/null || true; } | head -c 120M >"$work/pool"
    local file folder
    while read -r file; do
        if [[ $file == *.tgz || $file == *.tar.gz ]]; then
            folder=$(mktemp -d -p "$work")
            tar -xzf "$file" -C "$folder"
            while read -r member; do grow "$member"; done < <(find "$folder" -type f ! -name LICENSE ! -name '*.md')
            tar -C "$folder" -czf "$file" .
        else
            grow "$file"
        fi
    done < <(find "$work/files" -type f | sort)
    rm "$work/pool"
}

# ---------------------------------------------------------------- measuring

median() { sort -n | awk '{ value[NR] = $1 } END { print value[int((NR + 1) / 2)] }'; }

# at_most WHAT MEASURED LIMIT, at_least WHAT MEASURED LIMIT: a promise, and whether it is kept.
broken=0
at_most() { is_kept "$1" "$2" "<=" "$3"; }
at_least() { is_kept "$1" "$2" ">=" "$3"; }
is_kept() {
    awk "BEGIN { exit !($2 $3 $4) }" && return
    echo "NOT KEPT: $1 is $2, promised: $3 $4" >&2
    broken=1
}

# this_machine DIR: what it was measured on.
this_machine() {
    echo "$(uname -m), $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r), $(stat -f -c %T "$1"); $(date -u +%F)"
}

# measured COMMAND...: runs it, where AT says; seconds and the most memory in kB that it had.
measured() {
    sync
    "${AT[@]}" python3 - "$@" <<'END'
import os, sys, time
start = time.monotonic()
child = os.fork()
if child == 0:
    quiet = os.open(os.environ["LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    os.execvp(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(child, 0)
took = time.monotonic() - start
if status != 0:
    sys.exit(f"{sys.argv[1]} failed: " + open(os.environ["LOG"]).read()[-2000:])
print(f"{took:.3f} {usage.ru_maxrss}")
END
}
