# Turns the typed line into a command line that `cp-ask -C` proposes; nothing runs. Source this file, then bind a key:
#
#   source /usr/local/share/cp-tools/widgets/cp-ask.fish; bind \ea cp_ask_widget
function cp_ask_widget
    set -l typed (commandline | string collect)
    test -n "$typed"; or return 0
    set -l proposed (cp-ask -C -- $typed </dev/null | string collect)
    test -n "$proposed"; and commandline --replace -- $proposed
    commandline --function repaint
end
