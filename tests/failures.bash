# Why tests failed, in one line each. For scripts that have set pipefail and are in the checkout.
# shellcheck shell=bash

# reason LOG [TEST]: the message of the first panic, of this Rust test if it is named; else the last line of the log.
reason() {
    awk -v test="${2:-}" '
        / panicked at / && !at && (test == "" || index($0, "thread \047" test "\047 ") == 1) { at = NR + 1 }
        NR == at { message = $0 }
        NF { last = $0 }
        END { print message != "" ? message : last }' "$1" | tr '\t|' ' /' | cut -c 1-200
}

# run_tests PROGRAM ARGUMENT...: runs Rust tests. If tests fail, the last lines are `FAILED: TEST: REASON`, one for each.
run_tests() {
    local log status=0 test
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || status=$?
    # Only what comes after the last such heading is the list of their names.
    while read -r test; do
        echo "FAILED: $test: $(reason "$log" "$test")"
    done < <(awk '/^failures:$/ { list = 1; names = ""; next } list && /^    [^ ]/ { names = names $1 "\n" } END { printf "%s", names }' "$log")
    rm -f "$log"
    return "$status"
}
