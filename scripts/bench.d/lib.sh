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

# row NAME VALUE LIMIT UNIT: prints a row, and whether it is within its budget.
row() {
    awk -v name="$1" -v value="$2" -v limit="$3" -v unit="$4" \
        'BEGIN { printf "%-34s %9.2f %-4s at most %7.2f  %s\n", name, value, unit, limit, (value <= limit ? "ok" : "OVER") }'
}
