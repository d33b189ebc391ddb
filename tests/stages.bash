# Runs the stages of tests/run, one after another or concurrently. Prints their output and times. When the run ends, ends all
# stages. The script tests/run defines `fail` and has changed to the checkout.
# shellcheck shell=bash

# For each stage: its name, its duration in seconds, and its processor time in seconds. The processor time of a stage does not
# include concurrent stages.
times=()
# The running concurrent stages. The key is the process id. The values are name, start time and log.
declare -A beside_name=() beside_since=() beside_log=()
# The stages that start when a concurrent stage ends. The key is the name of the concurrent stage. The value has the names and
# commands of its followers.
declare -A followers=()
logs=$(mktemp -d)
# The stage that failed, and its log.
failed='' failed_log=''
# Cases that failed once. Each line has the command that runs only this case, a tab, and the reason for the failure.
failed_cases=$logs/failed-cases

# shellcheck source=tests/failures.bash
. tests/failures.bash

# With job control, each stage has its own process group, so that this script can end all processes of a stage.
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
    # A stage that has received the signal needs a moment to remove its files.
    for _ in {1..100}; do
        [[ -n $(jobs -pr) ]] || break
        sleep 0.1
    done
    # The failure is printed last, because readers look at the end of a long log, and some systems keep only the end.
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

# timed NAME COMMAND...: runs the command, and stores the processor time of all its processes.
timed() {
    local name=$1
    shift
    "$@"
    times >"$logs/$name.times"
}

# core_seconds NAME: prints the processor time that `timed` stored, in seconds.
core_seconds() {
    tr -s ' \n' '\n' <"$logs/$1.times" | awk -F '[ms]' '{ all += $1 * 60 + $2 } END { printf "%.0f", all }'
}

# stage NAME COMMAND...: runs the command, and prints how long it took. Ends the run if the command or a concurrent stage fails.
stage() {
    local name=$1 started=$SECONDS status=0 own ended
    shift
    echo "== $name"
    # The call is not `"$@" || fail`, which would turn off `set -e`: a function would continue after a failed command.
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

# beside NAME COMMAND...: starts a concurrent stage. The output of the stage is printed when the stage has ended.
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

# beside_after OTHER NAME COMMAND: starts a concurrent stage when the concurrent stage OTHER has ended.
beside_after() {
    if is_beside "$1" || follows "$1"; then followers[$1]+="$2"$'\t'"$3"$'\n'; else beside "$2" "$3"; fi
}

# follows NAME: whether the stage NAME waits for the end of a concurrent stage.
follows() {
    local waiting
    for waiting in "${followers[@]}"; do
        if [[ $'\n'$waiting == *$'\n'"$1"$'\t'* ]]; then return 0; fi
    done
    return 1
}

# has_ended PROCESS STATUS: prints the output of a concurrent stage, ends the run if the stage failed, and starts the stage's
# followers.
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

# is_beside [NAME]: whether the concurrent stage NAME, or any concurrent stage, still runs.
is_beside() {
    local name
    for name in "${beside_name[@]}"; do
        if [[ $name == "${1:-$name}" ]]; then return 0; fi
    done
    return 1
}

# join [NAME]: waits for the concurrent stage NAME, or for all concurrent stages.
join() {
    local ended status
    while is_beside "$@"; do
        status=0
        wait -n -p ended "${!beside_name[@]}" || status=$?
        has_ended "$ended" "$status"
    done
}

# keep_failed_case REASON COMMAND...: records a failed case. `once_more` runs the command again.
keep_failed_case() {
    local command
    printf -v command '%q ' "${@:2}"
    command=${command% }
    echo "== failed once: $command: $1"
    printf '%s\t%s\n' "$command" "$1" >>"$failed_cases"
}

# case_of_machines COMMAND...: runs a case that boots machines. The case may fail because concurrent stages use the cores. So a
# failed case is recorded for `once_more`, and the stage continues.
case_of_machines() {
    local log status=0
    log=$(mktemp -p "$logs")
    "$@" 2>&1 | tee "$log" || status=$?
    if ((status != 0)); then keep_failed_case "$(reason "$log")" "$@"; fi
}

# cases_of_machines COMMAND...: runs a command with several cases that boot machines. `COMMAND... CASE` runs one case. If cases
# fail, the output ends with a line `FAILED: CASE: REASON` for each of them. If the command fails without these lines, the stage
# fails.
cases_of_machines() {
    local log status=0 lines line
    log=$(mktemp -p "$logs")
    "$@" 2>&1 | tee "$log" || status=$?
    if ((status == 0)); then return; fi
    mapfile -t lines < <(tac "$log" | sed -n '/^FAILED: [^ ]*: /!q; s/^FAILED: //p')
    ((${#lines[@]} > 0)) || return "$status"
    for line in "${lines[@]}"; do keep_failed_case "${line#*: }" "$@" "${line%%: *}"; done
}

# once_more: repeats each failed case, alone. If the case fails again, the run fails. If it passes, the table says FLAKY.
once_more() {
    local command why
    [[ -s $failed_cases ]] || return 0
    while IFS=$'\t' read -r command why <&3; do
        stage "once more" bash -c "$command"
        times[-3]="FLAKY: $command: $why"
    done 3<"$failed_cases"
}

table() {
    printf '| stage | seconds | seconds of a core |\n| --- | ---: | ---: |\n'
    printf '| %s | %s | %s |\n' "${times[@]}" "all of it" "$SECONDS" "$(core_seconds all)"
}

# Prints the table at the end of a run. `times` must run in this process, because only this process is the parent of all stages.
sum_up() {
    times >"$logs/all.times"
    table
}

# Replaces the table of stages in tests/README.md.
keep_table() {
    local page=tests/README.md
    sed -i -e '/^| stage /,/^| all of it /d' -e '/^<!-- the last run, by tests\/run --write-times -->$/r /dev/stdin' "$page" <<<"$(table)"
}
