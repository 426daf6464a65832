#!/bin/sh
read -r line
printf '%s\n' "$line" >>"${0%/*}/sent"
echo '{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"m","role":"assistant","content":"hi","model":"m","backend":"x","stop_reason":"end_turn","usage":{}}}'
