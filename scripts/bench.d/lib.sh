#!/bin/sh
# Functions for the benchmarks. Safe to source: nothing runs on load.

# cpu_and_wall COMMAND: mean user+system and wall time of many runs, in milliseconds.
cpu_and_wall() {
    hyperfine -N --warmup 20 --runs "${RUNS:-300}" --export-json time.json "$@" >/dev/null 2>&1
    jq -r '.results[] | "\((.user + .system) * 1000) \(.mean * 1000)"' time.json
}

# peak COMMAND…: the most memory it had, in MiB.
peak() {
    /usr/bin/time -f '%M' -o memory.txt "$@" >/dev/null 2>&1 || true
    awk '{ printf "%.1f", $1 / 1024 }' memory.txt
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }

# figure NAME VALUE UNIT BOUND VERDICT NOTE: a line of the table, and where `figures` names a file, of that too.
figure() {
    awk -v name="$1" -v value="$2" -v unit="$3" -v bound="$4" -v verdict="$5" -v note="$6" -v group="${group:-}" -v file="${figures:-}" 'BEGIN {
        value = (value >= 1000 ? sprintf("%.0f", value) : sprintf("%.2f", value)) (unit == "" ? "" : " " unit)
        printf "%-40s %14s  %-18s %-5s %s\n", name, value, bound, verdict, note
        if (file != "") printf "%s\t%s\t%s\t%s\t%s\t%s\n", group, name, value, bound, verdict, note >>file
    }'
}

# within VALUE LIMIT: whether the first number is not more than the second.
within() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a <= b) }'; }

# row NAME VALUE LIMIT UNIT [REASON]: what must be little enough. The reason says why it is not, where it is not.
row() {
    if within "$2" "$3"; then figure "$1" "$2" "$4" "at most $3" ok ''; else figure "$1" "$2" "$4" "at most $3" OVER "${5:-}"; fi
}

# least NAME VALUE LIMIT UNIT [REASON]: what must be enough.
least() {
    if within "$3" "$2"; then figure "$1" "$2" "$4" "at least $3" ok ''; else figure "$1" "$2" "$4" "at least $3" UNDER "${5:-}"; fi
}

# fact NAME VALUE UNIT [NOTE]: what a peer does, or what the others are measured by.
fact() { figure "$1" "$2" "$3" '' '' "${4:-}"; }
