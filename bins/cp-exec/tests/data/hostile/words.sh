set -f +B
PATH=/nowhere
command_not_found_handle() { /usr/bin/printf '%s\0' "$@"; }
end() { /usr/bin/printf '\1\0'; }
enable -n $(compgen -b)
