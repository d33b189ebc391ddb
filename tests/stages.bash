# Stages of a run of the tests, one after another or beside others: what each says, how long it takes, and that all of it ends
# with the run. For tests/run, which has `fail` and is in the checkout.
# shellcheck shell=bash

# Each stage's name, seconds, and seconds of a core: the second does not depend on what runs beside it.
times=()
# Of stages that run beside others, by process id: name, when it started, and what it has said.
declare -A beside_name=() beside_since=() beside_log=()
# Of a stage beside others, by name: the commands that begin beside others once it has ended, and their names.
declare -A followers=()
logs=$(mktemp -d)
# The stage that failed, and its log.
failed='' failed_log=''
# Cases that failed once. Each line has the command that runs the case alone, a tab, and the reason of the failure.
failed_cases=$logs/failed-cases

# shellcheck source=tests/failures.bash
. tests/failures.bash

# Every stage is a job with a process group of its own (set -m), so that all of it ends with this script.
set -m
end_stages() {
    local job process state
    for process in "${!beside_name[@]}"; do
        state="which has ended"
        if kill -0 "$process" 2>/dev/null; then state="which has not ended"; fi
        echo "== ${beside_name[$process]}, $state; its last lines:"
        tail -n 40 "${beside_log[$process]}" || true
    done
    for job in $(jobs -p); do kill -- "-$job" 2>/dev/null || true; done
    # They take away what they have made, which takes a moment.
    for _ in {1..100}; do
        [[ -n $(jobs -pr) ]] || break
        sleep 0.1
    done
    # A long log may be cut, or read from its end only.
    if [[ -n $failed ]]; then
        if ((${#beside_name[@]} > 0)); then
            echo "== ${failed_log##*/}, which failed; its last lines:"
            tail -n 80 "$failed_log"
        fi
        if [[ -s $failed_cases ]]; then sed 's/^/== failed once: /; s/\t/: /' "$failed_cases"; fi
        echo "== failed: $failed: $(reason "$failed_log")"
    fi
    rm -rf "$logs"
}
trap end_stages EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# timed NAME COMMAND...: runs it, and keeps what all its processes took of a core.
timed() {
    local name=$1
    shift
    "$@"
    times >"$logs/$name.times"
}

# core_seconds NAME: what `timed` has kept, user and system together.
core_seconds() {
    tr -s ' \n' '\n' <"$logs/$1.times" | awk -F '[ms]' '{ all += $1 * 60 + $2 } END { printf "%.0f", all }'
}

# stage NAME COMMAND...: runs it, says how long it took, and stops here if it fails, or one beside it.
stage() {
    local name=$1 started=$SECONDS status=0 own ended
    shift
    echo "== $name"
    # `"$@" || fail` would go on behind a command that fails within a function.
    (
        set -o pipefail
        (
            set -e
            timed "$name" "$@"
        ) 2>&1 | tee "$logs/$name"
    ) </dev/null &
    own=$!
    while :; do
        wait -n -p ended "$own" "${!beside_name[@]}" || status=$?
        if [[ $ended == "$own" ]]; then break; fi
        has_ended "$ended" "$status"
        status=0
    done
    if ((status != 0)); then
        failed="$name: $*" failed_log=$logs/$name
        fail "$name failed: $*"
    fi
    echo "== $name: $((SECONDS - started)) s"
    times+=("$name" $((SECONDS - started)) "$(core_seconds "$name")")
}

# beside NAME COMMAND...: begins a stage that runs beside those that follow. What it says is printed when it has ended.
beside() {
    local name=$1
    shift
    echo "== $name, beside what follows"
    (
        set -e
        timed "$name" "$@"
    ) </dev/null >"$logs/$name" 2>&1 &
    beside_name[$!]=$name beside_since[$!]=$SECONDS beside_log[$!]=$logs/$name
}

# beside_after OTHER NAME COMMAND: begins a stage beside others as soon as OTHER, which is such a stage, has ended.
beside_after() {
    if is_beside "$1" || follows "$1"; then followers[$1]+="$2"$'\t'"$3"$'\n'; else beside "$2" "$3"; fi
}

# follows NAME: whether that stage waits for another to end.
follows() {
    local waiting
    for waiting in "${followers[@]}"; do
        if [[ $'\n'$waiting == *$'\n'"$1"$'\t'* ]]; then return 0; fi
    done
    return 1
}

# has_ended PROCESS STATUS: of a stage beside others.
has_ended() {
    local name=${beside_name[$1]} took=$((SECONDS - beside_since[$1]))
    echo "== $name, which ran beside"
    cat "${beside_log[$1]}"
    unset "beside_name[$1]"
    if (($2 != 0)); then
        failed=$name failed_log=$logs/$name
        fail "$name failed"
    fi
    echo "== $name: $took s"
    times+=("$name, beside others" "$took" "$(core_seconds "$name")")
    local follower command
    while IFS=$'\t' read -r follower command; do
        if [[ -n $follower ]]; then beside "$follower" "$command"; fi
    done <<<"${followers[$name]:-}"
    unset "followers[$name]"
}

# is_beside [NAME]: whether that stage, or any, still runs beside.
is_beside() {
    local name
    for name in "${beside_name[@]}"; do
        if [[ $name == "${1:-$name}" ]]; then return 0; fi
    done
    return 1
}

# join [NAME]: waits for that stage, or for all that run beside.
join() {
    local ended status
    while is_beside "$@"; do
        status=0
        wait -n -p ended "${!beside_name[@]}" || status=$?
        has_ended "$ended" "$status"
    done
}

# keep_failed_case REASON COMMAND...: has `once_more` run it.
keep_failed_case() {
    local command
    printf -v command '%q ' "${@:2}"
    command=${command% }
    echo "== failed once: $command: $1"
    printf '%s\t%s\n' "$command" "$1" >>"$failed_cases"
}

# case_of_machines COMMAND...: runs a case that boots machines. Other stages share the cores with it, so a case that fails is
# kept for `once_more`, and the stage goes on.
case_of_machines() {
    local log status=0
    log=$(mktemp -p "$logs")
    "$@" 2>&1 | tee "$log" || status=$?
    if ((status != 0)); then keep_failed_case "$(reason "$log")" "$@"; fi
}

# cases_of_machines COMMAND...: runs a command that has such cases, and `COMMAND... CASE` runs one of them. If cases fail, the
# last lines of the command are `FAILED: CASE: REASON`, one for each. A failure without such a line fails the stage.
cases_of_machines() {
    local log status=0 lines line
    log=$(mktemp -p "$logs")
    "$@" 2>&1 | tee "$log" || status=$?
    if ((status == 0)); then return; fi
    mapfile -t lines < <(tac "$log" | sed -n '/^FAILED: [^ ]*: /!q; s/^FAILED: //p')
    ((${#lines[@]} > 0)) || return "$status"
    for line in "${lines[@]}"; do keep_failed_case "${line#*: }" "$@" "${line%%: *}"; done
}

# once_more: runs each case again that failed once, alone. If a case fails again, the run fails; if not, the table says FLAKY.
once_more() {
    local command why
    [[ -s $failed_cases ]] || return 0
    while IFS=$'\t' read -r command why <&3; do
        stage "once more" bash -c "$command"
        times[-3]="FLAKY: $command: $why"
    done 3<"$failed_cases"
}

# The table that a run ends with.
table() {
    printf '| stage | seconds | seconds of a core |\n| --- | ---: | ---: |\n'
    printf '| %s | %s | %s |\n' "${times[@]}" "all of it" "$SECONDS" "$(core_seconds all)"
}

# Shows it. What all stages took together is known to this process, and to none that it starts.
sum_up() {
    times >"$logs/all.times"
    table
}

# Puts the table where tests/README.md has the last one.
keep_table() {
    local page=tests/README.md
    sed -i -e '/^| stage /,/^| all of it /d' -e '/^<!-- the last run, by tests\/run --write-times -->$/r /dev/stdin' "$page" <<<"$(table)"
}
