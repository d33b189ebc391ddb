# Functions for the benchmarks in this folder. They find the program to measure, make a mirror with programs as large as
# Kubernetes' programs, and measure commands.
# shellcheck shell=bash disable=SC2154,SC2034
# The benchmarks set `work` (their own folder), `LOG`, and `AT` (the command that runs each measured command).
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
targets=${CARGO_TARGET_DIR:-$repository/target}

# ---------------------------------------------------------------- the measured program

# Only --agent may set `agent`. The environment may not.
unset agent

# may_be_measured: sets `agent` to the output of packaging/build, unless --agent has set a program. Ends the benchmark if the
# program is missing or is not from the commit that is checked out. For a program from --agent, a different commit only causes a
# warning.
may_be_measured() {
    local why named=${agent+yes}
    agent=${agent-$targets/release/kops-agent}
    [[ -x $agent ]] || {
        echo "no $agent: build it with packaging/build" >&2
        exit 1
    }
    why=$(not_of_this_commit)
    [[ -n $why ]] || return 0
    while read -r line; do echo "tests/bench: $line" >&2; done <<<"$why"
    if [[ -n $named ]]; then
        echo "tests/bench: WARNING: what follows is not of this commit: keep it as no table of it" >&2
        return
    fi
    echo "tests/bench: commit, and build it with packaging/build; or name the program with --agent, to measure it all the same" >&2
    exit 1
}

# not_of_this_commit: prints why `agent` is not from this checkout. Prints nothing if it is.
not_of_this_commit() {
    local commit said changed
    commit=$(git -C "$repository" rev-parse --short=12 HEAD)
    said=$("$agent" --version) || said="nothing of its version"
    [[ $said == *"($commit)"* ]] || echo "$agent says $said, and $commit is checked out"
    # Untracked files count as changes, because a build would include them.
    changed=$("$repository/packaging/is-committed" 2>/dev/null) || echo "the checkout has changes, which the program may have or not: ${changed//$'\n'/, }"
}

# ---------------------------------------------------------------- the mirror

# megabytes NAME: prints the approximate size of a program of a node, in MiB.
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

# grow FILE: replaces a stand-in by machine code that is as large and as compressible as the real program.
offset=0
grow() {
    local size
    size=$(megabytes "$(basename "$1")")
    offset=$(((offset + 7) % 40))
    # When head has read enough, tail fails with a broken pipe.
    { tail -c +$((offset * 1048576)) "$work/pool" || true; } | head -c $((size * 1048576)) >"$1.new"
    chmod --reference="$1" "$1.new"
    mv "$1.new" "$1"
}

# fill_mirror ARCHITECTURE: makes a mirror of the files that machines of this architecture download.
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

# at_most WHAT MEASURED LIMIT and at_least WHAT MEASURED LIMIT check a promise. If the measured value breaks the promise, they report this
# and set `broken`.
broken=0
at_most() { is_kept "$1" "$2" "<=" "$3"; }
at_least() { is_kept "$1" "$2" ">=" "$3"; }
is_kept() {
    awk "BEGIN { exit !($2 $3 $4) }" && return
    echo "NOT KEPT: $1 is $2, promised: $3 $4" >&2
    broken=1
}

# this_machine DIR: prints a description of this machine and the type of DIR's file system.
this_machine() {
    echo "$(uname -m), $(nproc) cores of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), Linux $(uname -r), $(stat -f -c %T "$1"); $(date -u +%F)"
}

# measured COMMAND...: runs COMMAND through the command in AT, such as `env`. Prints the duration in seconds and the peak memory in kB.
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
