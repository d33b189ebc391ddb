# Functions that print one line with the reason for each failed test. A script that uses them sets pipefail and runs in the
# checkout.
# shellcheck shell=bash

# reason LOG [TEST]: prints the message of the log's first panic, or with TEST, of the first panic of this Rust test. If there
# is no panic, prints the last line.
reason() {
    awk -v test="${2:-}" '
        / panicked at / && !at && (test == "" || index($0, "thread \047" test "\047 ") == 1) { at = NR + 1 }
        NR == at { message = $0 }
        NF { last = $0 }
        END { print message != "" ? message : last }' "$1" | tr '\t|' ' /' | cut -c 1-200
}

# run_tests PROGRAM ARGUMENT...: runs Rust tests. If tests fail, the output ends with a line `FAILED: TEST: REASON` for each of
# them.
run_tests() {
    local log status=0 test
    log=$(mktemp)
    "$@" 2>&1 | tee "$log" || status=$?
    # The list of failed tests comes after the last line `failures:`.
    while read -r test; do
        echo "FAILED: $test: $(reason "$log" "$test")"
    done < <(awk '/^failures:$/ { list = 1; names = ""; next } list && /^    [^ ]/ { names = names $1 "\n" } END { printf "%s", names }' "$log")
    rm -f "$log"
    return "$status"
}
