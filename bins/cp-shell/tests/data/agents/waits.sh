#!/bin/sh
say() { printf '{"ok":true,"schema_version":"1.0","type":"%s","data":%s}\n' "$1" "$2"; }
while IFS= read -r line; do
    case $line in
        *'"type":"describe"'*) say describe '{"name":"waits","version":"1","capabilities":[]}' ;;
        *'"type":"process"'*)
            say delta '{"text":"It begins.\n"}'
            while ! [ -e "${0%/*}/go" ]; do
                if [ -e "${0%/*}/signal" ]; then kill -s "$(cat "${0%/*}/signal")" $PPID; rm "${0%/*}/signal"; fi
                sleep 0.01
            done
            say delta '{"text":"It ends."}'
            say message '{"content":"It begins.\nIt ends."}' ;;
    esac
done
