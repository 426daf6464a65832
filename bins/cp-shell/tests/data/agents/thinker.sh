#!/bin/sh
said() { printf '{"ok":true,"schema_version":"1.0","type":"%s","data":%s}\n' "$1" "$2"; }
while read -r _; do
    said delta '{"text":"","thinking":"first I look at "}'
    said delta '{"text":"","thinking":"all numbers"}'
    said delta '{"text":"It is **51**."}'
    said message '{"id":"1","role":"assistant","content":"It is **51**.","model":"m","backend":"b","stop_reason":"end_turn","usage":{}}'
done
