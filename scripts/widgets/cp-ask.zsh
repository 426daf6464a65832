# Turns the typed line into a command line that `cp-ask -C` proposes; nothing runs. Source this file, then bind a key:
#
#   . /usr/local/share/cp-tools/widgets/cp-ask.zsh && bindkey '\ea' cp-ask-widget
cp-ask-widget() {
    [[ -n $BUFFER ]] || return 0
    local proposed
    zle -I
    proposed=$(cp-ask -C -- "$BUFFER" </dev/null)
    [[ -n $proposed ]] || return
    BUFFER=$proposed
    CURSOR=${#BUFFER}
}
zle -N cp-ask-widget
