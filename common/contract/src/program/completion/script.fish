# Completions of PROGRAM for fish: PROGRAM completions fish --format raw | source
function __FUNCTION
    set -l words (commandline -opc) (commandline -ct)
    set -l typed (commandline -ct)
    set -l option (string match -r -- '^--[^=]*=' $typed)
    set -l value (string replace -r -- '^--[^=]*=' '' $typed)
    $words[1] __complete $words[2..-1] 2>/dev/null | while read -l line
        switch $line
            case ':files'
                __fish_complete_path "$value" | string replace -r -- '^' "$option"
            case ':directories'
                __fish_complete_directories "$value" '' | string replace -r -- '^' "$option"
            case ':commands'
                __fish_complete_command
            case '*'
                echo $line
        end
    end
end
complete -c PROGRAM -e
complete -c PROGRAM -f -a '(__FUNCTION)'
