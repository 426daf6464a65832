# Completions of PROGRAM for bash: source <(PROGRAM completions bash --format raw)
_FUNCTION() {
    local line file word=${COMP_WORDS[COMP_CWORD]-}
    [[ $word != = ]] || word=
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
            :files | :directories)
                compopt -o filenames 2>/dev/null
                while IFS= read -r file; do COMPREPLY+=("$file"); done < <(
                    if [[ $line = :files ]]; then compgen -f -- "$word"; else compgen -d -- "$word"; fi
                )
                ;;
            :commands) while IFS= read -r file; do COMPREPLY+=("$file"); done < <(compgen -c -- "$word") ;;
            *) COMPREPLY+=("${line%%$'\t'*}") ;;
        esac
    done < <("${COMP_WORDS[0]}" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _FUNCTION PROGRAM
