#compdef PROGRAM
# Completions of PROGRAM for zsh: source <(PROGRAM completions zsh --format raw), or in a directory of fpath as _PROGRAM.
_FUNCTION() {
    setopt localoptions unset
    local line word about
    local -a found
    for line in "${(@f)$("${words[1]}" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
        case $line in
            '') ;;
            :files) compset -P '--*='; _files ;;
            :directories) compset -P '--*='; _files -/ ;;
            :commands) _command_names -e ;;
            *)
                word=${line%%$'\t'*}
                about=${${line#$word}#$'\t'}
                found+=("${word//:/\\:}${about:+:$about}")
                ;;
        esac
    done
    (( ${#found} == 0 )) || _describe PROGRAM found
}
if [[ ${funcstack[1]-} == _PROGRAM || ${funcstack[1]-} == _FUNCTION ]]; then
    _FUNCTION "$@"
else
    (( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit -i; }
    compdef _FUNCTION PROGRAM
fi
