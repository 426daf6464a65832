# The completions of cp-ask for fish: cp-ask completions fish | source
complete -c cp-ask -n __fish_use_subcommand -f -a 'init config session reset log completions help'
complete -c cp-ask -s s -l system -r -d 'more system text'
complete -c cp-ask -s c -l continue -d 'continue the conversation of before'
complete -c cp-ask -s m -l model -x -d 'the model'
complete -c cp-ask -l agent -x -d 'who speaks'
complete -c cp-ask -l tools -r -d 'let the model use these tools'
complete -c cp-ask -l tool-backend -x -a 'native bash llm' -d 'what drives the tools'
complete -c cp-ask -l backend -x -a 'anthropic openai openai-responses gemini llm stub' -d 'who answers'
