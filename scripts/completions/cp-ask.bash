# The completions of cp-ask for bash: eval "$(cp-ask completions bash)"
_cp_ask() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words=
    case $before in
        -s | --system | --tools) return ;;
        -m | --model | --prompt | --name) return ;;
        --session) words=$(cp-session list 2>/dev/null | jq -r '.data.items[] | .session_id, .name // empty') ;;
        --agent) words=$(cd "${CP_HOME:-${XDG_DATA_HOME:-$HOME/.local/share}/cp}/agents" 2>/dev/null && printf '%s\n' */ | tr -d /) ;;
        --backend) words='anthropic openai openai-responses gemini llm stub' ;;
        --tool-backend) words='native bash llm elixir' ;;
        completions) words='bash zsh fish' ;;
        *)
            words='-s -c -m -C --session --name --agent --prompt --tools --tool-backend --backend'
            if ((COMP_CWORD == 1)); then words+=' init config session reset log completions help'; fi
            ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -o default -F _cp_ask cp-ask
