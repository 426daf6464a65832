#!/bin/sh
say() { printf '{"ok":true,"schema_version":"1.0","type":"%s","data":%s}\n' "$1" "$2"; }
while IFS= read -r line; do
    case $line in
        *'"type":"describe"'*) say describe '{"name":"echo","version":"2.1","capabilities":["MEMORY","SIGNALS"]}' ;;
        *'please fail'*) printf '{"ok":false,"schema_version":"1.0","type":"error","error":{"code":"E_SERVER","message":"out of ideas","details":{},"retryable":true}}\n' ;;
        *'please leave'*) exit 3 ;;
        *'"type":"process"'*) say delta '{"text":"","thinking":"what was it"}'; say delta '{"text":"you "}'; say delta '{"text":"said it"}'; say message '{"content":"you said it"}' ;;
    esac
done
