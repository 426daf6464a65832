# Turns the typed line into a command line that `cp-ask -C` proposes; nothing runs. Source this file, then bind a key:
#
#   . /usr/local/share/cp-tools/widgets/cp-ask.bash && bind -x '"\ea": cp_ask_widget'
cp_ask_widget() {
    [[ -n $READLINE_LINE ]] || return 0
    local proposed
    proposed=$(cp-ask -C -- "$READLINE_LINE" </dev/null)
    [[ -n $proposed ]] || return
    READLINE_LINE=$proposed
    READLINE_POINT=${#READLINE_LINE}
}
