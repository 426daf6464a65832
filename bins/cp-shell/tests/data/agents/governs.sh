#!/bin/sh
read -r line
printf '{"ok":true,"schema_version":"1.0","type":"describe","data":{"name":"g","version":"1","capabilities":["GOVERNANCE"]}}\n'
cat >/dev/null
