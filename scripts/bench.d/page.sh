#!/bin/sh
# Prints the figures of a run as docs/BENCHMARKS.md: page.sh FIGURES.
set -eu

version() { command -v "$1" >/dev/null 2>&1 && "$@" 2>&1 | head -n 1 | tr -d '\r'; }

cat <<END
# Benchmarks

Written by \`scripts/bench --write\` on $(date -u +%Y-%m-%d): release build, $(nproc) processors ($(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)),
Linux $(uname -r | cut -d - -f 1). Ratios compare with the named peers in the same run; the limits are ours. A figure over its limit has its reason beside it. cp-scale(7) extrapolates these figures to 1,000,000,000 rows.

END
awk -F '\t' '
    $1 != group {
        group = $1
        printf "%s## %s\n\n| what | measured | limit | |\n|---|---:|---|---|\n", (NR > 1 ? "\n" : ""), group
    }
    { printf "| %s | %s | %s | %s%s%s |\n", $2, $3, $4, $5, ($5 != "" && $6 != "" ? ": " : ""), $6 }
' "$1"
printf '\n## Peers\n\n'
for peer in 'aichat --version' 'bwrap --version' 'curl --version' 'jq --version' 'llm --version' 'openssl version' 'python3 --version' 'rg --version' \
    'sqlite3 --version' 'timeout --version'; do
    # shellcheck disable=SC2086
    ! said=$(version $peer) || printf -- '- %s: %s\n' "${peer%% *}" "$said"
done
# A build of each profile takes too long to measure in each run.
cat "$(dirname "$0")/profiles.md"
