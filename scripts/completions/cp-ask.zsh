#compdef cp-ask
# The completions of cp-ask for zsh: put this on fpath as _cp-ask.
_arguments \
    '(-s --system)'{-s,--system}'[more system text]:text or file:_files' \
    '(-c --continue)'{-c,--continue}'[continue the current conversation]' \
    '--session[continue this conversation]:session:' \
    '--name[name the conversation]:name:' \
    '(-C --command)'{-C,--command}'[print a command line, and run it after confirmation]' \
    '(-m --model)'{-m,--model}'[the model]:model:' \
    '--agent[the agent]:agent:_files -W "${CP_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/cp}/agents" -/' \
    '--prompt[begin the system text with a governed prompt]:id:' \
    '--tools[let the model use these tools]:directory or file:_files' \
    '--tool-backend[what drives the tools]:name:(native bash llm elixir)' \
    '--backend[what answers]:name:(anthropic openai openai-responses gemini llm stub)' \
    '1:text:(init config session reset log completions help)'
