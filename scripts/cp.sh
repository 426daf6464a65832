#!/bin/sh
# Functions for scripts that compose the programs: source this file. Nothing runs on load. See cp.sh(7).
#
# For bash, dash, busybox sh, ksh93, mksh and zsh. Functions run in subshells, so that the caller's variables, options and traps stay as
# they are; only config_init sets variables. Texts go through pipes, never through eval, sh -c or a jq program.

# --- Logging

# log_event EVENT [MESSAGE]: one line on LOG_FILE, or an entry on the ledger where LOG_FILE is not set.
log_event() (
    [ $# -ge 1 ] && [ $# -le 2 ] || cp_fail log_event 'expected: log_event EVENT [MESSAGE]' || exit 1
    cp_settle || exit 1
    agent=$(cp_agent) || exit 1
    unset text
    text=${2-}
    event=$(cp_utf8 "$1") || exit 1
    if [ -z "${LOG_FILE-}" ]; then
        cp_put "$text" | jq -Rsc '{message: .}' |
            cp-log append --rows --sync line --event="$event" --agent "$agent" >/dev/null || exit 1
    elif cp_is_ledger "$LOG_FILE"; then
        cp_put "$text" | jq -Rsc '{message: .}' |
            cp-log append --rows --sync line --event="$event" --agent "$agent" -f "$LOG_FILE" >/dev/null || exit 1
    else
        cp_put "$text" | jq -Rsc '{message: .}' |
            cp_plain "$LOG_FILE" '{ts, agent, event, message}' --event="$event" --agent "$agent" || exit 1
    fi
)

# --- Configuration

# config_init [DIRECTORY]: reads config/cp.env of the home, or of this home, for names that are not set, and exports them.
config_init() {
    [ $# -le 1 ] || cp_fail config_init 'expected: config_init [DIRECTORY]' || return 1
    if [ -n "${ZSH_VERSION-}" ]; then emulate -L sh; fi
    if [ $# -eq 1 ]; then
        CP_HOME=$(cp_directory "$1") || return 1
        CP_CONFIGURED_HOME=''
    fi
    cp_forget
    cp_given=$(cp_assigned) || return 1
    cp_environment || return 1
    cp_can_read || return 1
    SHELLCLAW_HOME=$CP_HOME
    : "${SHELLCLAW_MODEL:=${CP_MODEL-}}" "${SHELLCLAW_DEFAULT_AGENT:=${CP_AGENT:-default}}"
    : "${SHELLCLAW_LLM_BACKEND:=${CP_BACKEND-}}" "${SHELLCLAW_TOOL_BACKEND:=${CP_TOOL_BACKEND:-native}}"
    : "${SHELLCLAW_SKILLS_DIR:=${CP_TOOLS_DIR-}}"
    # What this set is the file's, and gives way to what the environment has later.
    CP_CONFIGURED_HOME=$CP_HOME
    CP_CONFIGURED=$(cp_remember "$cp_given")
    export CP_CONFIGURED CP_CONFIGURED_HOME
    unset cp_given
}

# cp_can_read: whether the files of the configuration can be read. One that is not there can, and an agent need not be in it.
cp_can_read() (
    cp_settle && cp-shell config >/dev/null && agent=$(cp_agent) || exit 1
    code=0
    said=$(cp-shell config agent --quiet "$agent" soul 2>&1 >/dev/null) || code=$?
    [ "$code" -ne 4 ] || { printf '%s\n' "$said" >&2; exit 1; }
)

# config_get KEY: a setting, by its name here or in the environment; nothing where it has no value.
config_get() (
    [ $# -eq 1 ] || cp_fail config_get 'expected: config_get KEY' || exit 1
    cp_settle || exit 1
    case $1 in
        home | CP_HOME | SHELLCLAW_HOME) printf '%s\n' "$CP_HOME" && exit ;;
        log_file | LOG_FILE) printf '%s\n' "${LOG_FILE-}" && exit ;;
        default_agent | CP_AGENT | SHELLCLAW_DEFAULT_AGENT | SHELLCLAW_AGENT_ID) key=agent ;;
        llm_backend | SHELLCLAW_LLM_BACKEND) key=backend ;;
        skills_dir | SHELLCLAW_SKILLS_DIR) key=tools_dir ;;
        SHELLCLAW_* | CP_*) key=$(printf '%s' "${1#*_}" | tr '[:upper:]' '[:lower:]') ;;
        *) key=$1 ;;
    esac
    cp-shell config get --format text -- "$key"
)

# config_agent ID KEY: a value of an agent in config/agents.json; nothing where it is null or not listed.
config_agent() (
    [ $# -eq 2 ] || cp_fail config_agent 'expected: config_agent ID KEY' || exit 1
    cp_settle || exit 1
    code=0
    said=$(cp-shell config agent --quiet -- "$1" "$2" 2>/dev/null) || code=$?
    case $code in
        0) cp_put "$said" | jq -r '.data.value | if . == null then empty else . end' ;;
        3) ;;
        *) cp_put "$said" | jq -r '.error.message' >&2 && exit "$code" ;;
    esac
)

# --- Conversations

# session_append FILE ROLE CONTENT: appends a line {ts, role, content} to a file of yours, or a turn to a session.
session_append() (
    [ $# -eq 3 ] || cp_fail session_append 'expected: session_append FILE ROLE CONTENT' || exit 1
    cp_settle || exit 1
    if session=$(cp_session_of "$1"); then
        cp_put "$3" | cp-session append --session "$session" --role="$2" --input text >/dev/null || exit 1
    else
        # Built from standard input and not from arguments, whose size is limited.
        { cp_put "$2" | jq -Rs . && cp_put "$3" | jq -Rs .; } | jq -sc '{role: .[0], content: .[1]}' |
            cp_plain "$1" '{ts, role, content}' || exit 1
    fi
)

# session_load FILE [LIMIT]: the conversation as `role: content` lines, the newest LIMIT of it.
session_load() (
    [ $# -ge 1 ] && [ $# -le 2 ] || cp_fail session_load 'expected: session_load FILE [LIMIT]' || exit 1
    [ $# -eq 1 ] || cp_number session_load LIMIT "$2" || exit 1
    cp_settle || exit 1
    if session=$(cp_session_of "$1"); then
        if [ $# -eq 2 ]; then set -- --last "$2"; else set --; fi
        cp-session load --session "$session" --format text "$@" || exit 1
    elif [ -e "$1" ]; then
        # A line that is not an entry is printed as damaged, and the rest is read.
        jq -Rrn --argjson limit "${2:-null}" '
            [inputs | select(. != "") | . as $line | try fromjson catch {role: "damaged line", content: $line}
                | if type == "object" then . else {role: "damaged line", content: tojson} end]
            | if $limit == 0 then [] elif $limit then .[-$limit:] else . end
            | .[] | "\(.role): \(.content)"' <"$1" || exit 1
    fi
)

# session_count FILE: how many entries it has.
session_count() (
    [ $# -eq 1 ] || cp_fail session_count 'expected: session_count FILE' || exit 1
    cp_settle || exit 1
    if session=$(cp_session_of "$1"); then
        cp-session count --session "$session" --format text || exit 1
    elif [ -e "$1" ]; then
        awk 'NF { n++ } END { print n + 0 }' <"$1" || exit 1
    else
        echo 0
    fi
)

# session_clear FILE: archives it beside itself and starts a new one.
session_clear() (
    [ $# -eq 1 ] || cp_fail session_clear 'expected: session_clear FILE' || exit 1
    cp_settle || exit 1
    if session=$(cp_session_of "$1"); then
        cp-session clear --session "$session" >/dev/null || exit 1
        exit 0
    fi
    # The lock creates the file if there is none.
    cp_lock "$1" || exit 1
    if [ -s "$1" ]; then cp_archive "$1" || exit 1; fi
    : >|"$1.new" && mv -f -- "$1.new" "$1"
)

# session_compact SESSION [KEEP]: lets the model summarise all but the newest KEEP turns (default: 10). The originals stay on disk.
session_compact() (
    [ $# -ge 1 ] && [ $# -le 2 ] || cp_fail session_compact 'expected: session_compact SESSION [KEEP]' || exit 1
    cp_number session_compact KEEP "${2:-10}" || exit 1
    cp_settle || exit 1
    session=$(cp_session_of "$1") || cp_fail session_compact "$1 is a file, not a session: only sessions can be compacted" || exit 1
    cp-session compact --session "$session" --keep "${2:-10}" >/dev/null || exit 1
)

# --- The model

# llm_call MESSAGE [--system TEXT] [--model MODEL] [--continue]: prints the answer. 0 success, 1 error.
llm_call() (
    cp_settle || exit 1
    # A name that the caller exports would take a long text into the environment of every program.
    unset message system model
    system='' model='' continue=no literal=no
    while [ $# -gt 0 ]; do
        if [ "$literal" = no ]; then
            case $1 in
                -s | --system | -m | --model)
                    [ $# -ge 2 ] || cp_fail llm_call "$1 needs a value" || exit 1
                    case $1 in *s | *system) system=$2 ;; *) model=$2 ;; esac
                    shift 2
                    continue
                    ;;
                -c | --continue) continue=yes && shift && continue ;;
                --) literal=yes && shift && continue ;;
                -?*) cp_fail llm_call "unknown option $1" 'write -- before a message that starts with a hyphen' || exit 1 ;;
            esac
        fi
        [ -z "${message+given}" ] || cp_fail llm_call "more than one message: $1" 'quote the message' || exit 1
        message=$1
        shift
    done
    if [ -z "${message+given}" ]; then
        [ ! -t 0 ] || cp_fail llm_call 'expected: llm_call MESSAGE [--system TEXT] [--model MODEL] [--continue]' || exit 1
        message=$(cat && echo .) || exit 1
        message=${message%.}
    fi
    agent=$(cp_agent) && session=$(cp_conversation "$agent" "$continue") || exit 1
    set -- cp-llm
    if [ -n "$model" ]; then set -- cp-llm --model="$model"; fi
    composed_agent=$agent
    if [ -n "${CP_SESSION-}" ]; then composed_agent=''; fi
    cp_scratch || exit 1
    cp_put "$system" >"$scratch/system" || exit 1
    # The system text is the one given here and not the agent's, so it replaces what was composed.
    cp_put "$message" | cp_prompt "$session" "$composed_agent" "$continue" >"$scratch/prompt" || exit 1
    jq -c --rawfile system "$scratch/system" 'if .type != "prompt" then . elif $system == "" then del(.data.system) else .data.system = $system end' <"$scratch/prompt" |
        cp_answer "$session" "$@" || exit 1
    [ "$continue" = yes ] || cp_keep "$agent" "$session" || exit 1
)

# llm_call_stub MESSAGE: `stub response N`, counting from 1 in each shell, its substitutions and pipes included.
llm_call_stub() (
    cp_settle || exit 1
    umask 077
    directory=$CP_HOME/state/stub
    mkdir -p -- "$directory" || exit 1
    for file in "$directory"/*; do
        kill -0 "${file##*/}" 2>/dev/null || rm -f -- "$file"
    done
    # $$ is the process id of the shell in its subshells too; its start time tells it from an earlier process with that id.
    started=$(sed 's/.*) //' "/proc/$$/stat" 2>/dev/null | cut -d ' ' -f 20)
    cp_lock "$directory/$$" || exit 1
    count=0
    if IFS=' ' read -r of last <"$directory/$$" && [ "$of" = "${started:-0}" ]; then count=$last; fi
    count=$((count + 1))
    printf '%s %s\n' "${started:-0}" "$count" >|"$directory/$$" || exit 1
    printf 'stub response %s\n' "$count"
)

# cp_system OPTION…: the system text that cp-compose assembles for an agent.
cp_system() {
    unset CP_SESSION
    composed=$(cp-compose "$@" -- text) || exit 1
    cp_put "$composed" | jq -r '.data.system // ""'
}

# compose_system DIRECTORY: the system text of an agent: its soul.md, then its context.
compose_system() (
    [ $# -eq 1 ] || cp_fail compose_system 'expected: compose_system DIRECTORY' || exit 1
    cp_settle || exit 1
    [ -r "$1/soul.md" ] || cp_fail compose_system "$1/soul.md: cannot be read" || exit 1
    directory=$(CDPATH='' cd -P -- "$1" && pwd) || exit 1
    home=$(CDPATH='' cd -P -- "$CP_HOME" 2>/dev/null && pwd) || home=''
    id=${directory##*/}
    if [ "$directory" = "$home/agents/$id" ]; then
        cp_system --agent "$id"
        exit
    fi
    # A directory elsewhere becomes the agent of a temporary home.
    cp_scratch || exit 1
    mkdir "$scratch/agents" && ln -s "$directory" "$scratch/agents/it" || exit 1
    cp_system --home "$scratch" --agent it
)

# tool_loop MESSAGE SYSTEM TOOLS [MAX_ITERATIONS]: prints the final answer. 0 success, 1 error, 2 iterations used up.
# TOOLS is a JSON list of tools, whose executables are in CP_TOOLS_DIR, or in bin/ beside it; or what cp-toolloop --tools takes.
tool_loop() (
    [ $# -ge 3 ] && [ $# -le 4 ] || cp_fail tool_loop 'expected: tool_loop MESSAGE SYSTEM TOOLS [MAX_ITERATIONS]' || exit 1
    cp_settle || exit 1
    unset message system tools iterations
    message=$1 system=$2 tools=$3 iterations=${4-}
    [ -e "$tools" ] || cp_fail tool_loop "$tools: no such file" || exit 1
    cp_scratch || exit 1
    trap 'exit 1' HUP INT TERM
    set --
    if [ -n "$iterations" ]; then
        cp_number tool_loop MAX_ITERATIONS "$iterations" || exit 1
        set -- --max-iterations "$iterations"
    fi
    { cp_put "$system" | jq -Rs . && cp_put "$message" | jq -Rs .; } |
        jq -sc '{ok: true, schema_version: "1.0", type: "prompt", data: {system: .[0], messages: [{role: "user", content: .[1]}]}, meta: {duration_ms: 0}}' |
        cp_loop "$tools" --input records "$@" | tee "$scratch/records" | cp_log_rounds || :
    # The closing line has the outcome, and a record before it the budget that was used up.
    case $(jq -rn '[inputs] | if last.meta and last.ok then "done" else [.[].error.details.budget? // empty] | last // "" end' "$scratch/records") in
        done) cp_words <"$scratch/records" || exit 1 ;;
        iterations)
            jq -r '.error.details.resume? // empty | "  Resume: \(.)"' "$scratch/records" | tail -n 1 >&2
            exit 2
            ;;
        *) exit 1 ;;
    esac
)

# --- What the functions share, with each other and with cp-ask

# cp_fail NAME MESSAGE [HINT]: prints what is wrong. Always false.
cp_fail() {
    printf '%s: %s\n' "$1" "$2" >&2
    [ $# -lt 3 ] || printf '  Hint: %s\n' "$3" >&2
    return 1
}

# cp_scratch: a temporary directory, `scratch`, that is removed when the subshell ends.
cp_scratch() {
    scratch=$(mktemp -d) && trap 'rm -rf "$scratch"' EXIT && trap 'exit 130' HUP INT TERM
}

# cp_number NAME WHAT VALUE: whether it is a number.
cp_number() {
    case $3 in '' | *[!0-9]*) cp_fail "$1" "$2 must be a number, not '$3'" ;; esac
}

# cp_base VALUE DIRECTORY: a base directory of XDG: this value of its variable, if it is absolute, or this directory below HOME.
cp_base() (
    case $1 in
        /*) printf '%s\n' "$1" ;;
        *)
            case ${HOME-} in /*) ;; *) cp_fail cp.sh 'no home directory: HOME is not an absolute path' 'set CP_HOME' || exit 4 ;; esac
            printf '%s\n' "$HOME/$2"
            ;;
    esac
)

# cp_home: the home, as the programs find it.
cp_home() (
    home=${CP_HOME:-${SHELLCLAW_HOME-}}
    # The home that config_init found gives way to one that is named after it.
    if [ "$home" = "${CP_CONFIGURED_HOME-}" ]; then home=${SHELLCLAW_HOME:-$home}; fi
    if [ -z "$home" ]; then
        home=$(cp_base "${XDG_DATA_HOME-}" .local/share)/cp || exit 4
    fi
    case $home in /*) ;; *) home=$PWD/$home ;; esac
    printf '%s\n' "$home"
)

# cp_directory DIRECTORY: the home that it is, or whose config/ it is.
cp_directory() (
    home=$(CDPATH='' cd -P -- "$1" 2>/dev/null && pwd) || cp_fail config_init "$1: no such directory" || exit 1
    if ! [ -d "$home/config" ] && [ "${home##*/}" = config ]; then home=${home%/*}; fi
    printf '%s\n' "${home:-/}"
)

# cp_names: what config/cp.env can set, and the older names that config_init sets.
cp_names() {
    printf '%s ' CP_AGENT CP_BACKEND CP_LEDGER CP_MODEL CP_SESSION CP_STUB_SCRIPT CP_TIER CP_TOOL_BACKEND CP_TOOLS_DIR LOG_FILE \
        SHELLCLAW_DEFAULT_AGENT SHELLCLAW_LLM_BACKEND SHELLCLAW_MODEL SHELLCLAW_SKILLS_DIR SHELLCLAW_TOOL_BACKEND \
        ANTHROPIC_API_KEY ANTHROPIC_API_KEY_FILE ANTHROPIC_API_KEY_COMMAND ANTHROPIC_BASE_URL \
        OPENAI_API_KEY OPENAI_API_KEY_FILE OPENAI_API_KEY_COMMAND OPENAI_BASE_URL \
        GEMINI_API_KEY GEMINI_API_KEY_FILE GEMINI_API_KEY_COMMAND GEMINI_BASE_URL
}

# cp_assigned: those of these names that have a value.
cp_assigned() (
    for name in $(cp_names); do
        eval "value=\${$name-}"
        [ -z "$value" ] || printf ' %s ' "$name"
    done
)

# cp_remember GIVEN: the names that have a value and are not among these, as NAME=VALUE lines. A key is not repeated.
cp_remember() (
    for name in $(cp_assigned); do
        case $1 in *" $name "*) continue ;; esac
        eval "value=\${$name-}"
        printf '%s=%s\n' "$name" "$(cp_mark "$name" "$value")"
    done
)

# cp_mark NAME VALUE: by what a value is known again.
cp_mark() {
    case $1 in *_KEY) cp_put "$2" | cksum ;; *) cp_put "$2" ;; esac
}

# cp_forget: unsets what config_init set and nobody has changed since.
cp_forget() {
    [ -n "${CP_CONFIGURED-}" ] || return 0
    while IFS= read -r cp_line; do
        # Only names of ours are taken, so nothing else is evaluated.
        case " $(cp_names)" in *" ${cp_line%%=*} "*) ;; *) continue ;; esac
        cp_value=''
        eval "cp_value=\${${cp_line%%=*}-}"
        if [ "$(cp_mark "${cp_line%%=*}" "$cp_value")" = "${cp_line#*=}" ]; then unset "${cp_line%%=*}"; fi
    done <<CP_END
$CP_CONFIGURED
CP_END
    unset cp_line cp_value CP_CONFIGURED
}

# cp_environment: exports the settings of the environment under the names of the programs, then those of config/cp.env for names
# without a value. The file is data: nothing in it is ever executed.
cp_environment() {
    CP_HOME=$(cp_home) || return 1
    cp_forget
    export CP_HOME CP_AGENT CP_BACKEND CP_LEDGER CP_MODEL CP_SESSION CP_STUB_SCRIPT CP_TIER CP_TOOL_BACKEND CP_TOOLS_DIR
    cp_set CP_MODEL "${SHELLCLAW_MODEL-}"
    cp_set CP_BACKEND "${SHELLCLAW_LLM_BACKEND-}"
    cp_set CP_AGENT "${SHELLCLAW_AGENT_ID:-${SHELLCLAW_DEFAULT_AGENT-}}"
    cp_set SHELLCLAW_TOOL_BACKEND "${SHELLCLAW_TOOL_BACKEND-}"
    cp_set CP_TOOLS_DIR "${SHELLCLAW_SKILLS_DIR:-${SHELLCLAW_TOOLS_DIR-}}"
    cp_config=$CP_HOME/config
    if ! [ -e "$cp_config" ] && [ "$CP_HOME" = "$(cp_base "${XDG_DATA_HOME-}" .local/share 2>/dev/null)/cp" ]; then
        cp_config=$(cp_base "${XDG_CONFIG_HOME-}" .config)/cp || return 1
    fi
    for cp_file in "$cp_config/cp.env" "$cp_config/shellclaw.env"; do
        [ -f "$cp_file" ] || continue
        cp_lines=$(cp_assignments "$cp_file") && cp_lines=$(cp_put "$cp_lines" | cp_newest) || return 1
        while IFS= read -r cp_line; do
            [ -z "$cp_line" ] || cp_set "${cp_line%%=*}" "${cp_line#*=}"
        done <<CP_END
$cp_lines
CP_END
    done
    unset cp_config cp_file cp_lines cp_line
}

# cp_put TEXT: prints it as it is. Some shells have no printf of their own, and another program's arguments are limited.
# shellcheck disable=SC3043,SC3045
cp_put() {
    case ${KSH_VERSION-} in
        *'MIRBSD KSH'* | *'LEGACY KSH'*) print -rn -- "$1" ;;
        *) printf '%s' "$1" ;;
    esac
}

# cp_is_ascii TEXT: whether it has printable characters of ASCII only.
cp_is_ascii() (
    LC_ALL=C
    case $1 in *[!\ -~]*) exit 1 ;; esac
)

# cp_utf8 TEXT: prints it, with a replacement character for each byte that is not UTF-8.
cp_utf8() {
    if cp_is_ascii "$1"; then cp_put "$1"; else cp_put "$1" | jq -Rsj .; fi
}

# cp_settle: the environment of a function, which reads what the programs print: no setting may change its form.
cp_settle() {
    # What follows is sh; the functions are subshells, so that the caller's zsh stays as it is.
    if [ -n "${ZSH_VERSION-}" ]; then emulate sh; fi
    command -v cp-shell >/dev/null || cp_fail cp.sh 'cp-shell is not on PATH' 'add the directory of the cp-tools programs to PATH' || return 1
    command -v jq >/dev/null || cp_fail cp.sh 'jq is not on PATH' || return 1
    cp_environment || return 1
    export CP_FORMAT=json
}

# cp_set NAME VALUE: gives a variable that has no value this one, and exports it. False for a name that is none of ours.
cp_set() {
    [ -n "$2" ] || return 0
    case $1 in
        CP_HOME | SHELLCLAW_HOME | CP_FORMAT) ;;
        CP_AGENT | SHELLCLAW_AGENT_ID | SHELLCLAW_DEFAULT_AGENT) export CP_AGENT="${CP_AGENT:-$2}" ;;
        CP_BACKEND | SHELLCLAW_LLM_BACKEND) export CP_BACKEND="${CP_BACKEND:-$2}" ;;
        CP_LEDGER) export CP_LEDGER="${CP_LEDGER:-$2}" ;;
        CP_MODEL | SHELLCLAW_MODEL) export CP_MODEL="${CP_MODEL:-$2}" ;;
        CP_SESSION) export CP_SESSION="${CP_SESSION:-$2}" ;;
        CP_STUB_SCRIPT) export CP_STUB_SCRIPT="${CP_STUB_SCRIPT:-$2}" ;;
        CP_TIER) export CP_TIER="${CP_TIER:-$2}" ;;
        CP_TOOL_BACKEND | SHELLCLAW_TOOL_BACKEND) export CP_TOOL_BACKEND="${CP_TOOL_BACKEND:-$2}" ;;
        CP_TOOLS_DIR | SHELLCLAW_SKILLS_DIR | SHELLCLAW_TOOLS_DIR) export CP_TOOLS_DIR="${CP_TOOLS_DIR:-$2}" ;;
        LOG_FILE) export LOG_FILE="${LOG_FILE:-$2}" ;;
        ANTHROPIC_API_KEY) export ANTHROPIC_API_KEY="${ANTHROPIC_API_KEY:-$2}" ;;
        ANTHROPIC_API_KEY_FILE) export ANTHROPIC_API_KEY_FILE="${ANTHROPIC_API_KEY_FILE:-$2}" ;;
        ANTHROPIC_API_KEY_COMMAND) export ANTHROPIC_API_KEY_COMMAND="${ANTHROPIC_API_KEY_COMMAND:-$2}" ;;
        ANTHROPIC_BASE_URL) export ANTHROPIC_BASE_URL="${ANTHROPIC_BASE_URL:-$2}" ;;
        OPENAI_API_KEY) export OPENAI_API_KEY="${OPENAI_API_KEY:-$2}" ;;
        OPENAI_API_KEY_FILE) export OPENAI_API_KEY_FILE="${OPENAI_API_KEY_FILE:-$2}" ;;
        OPENAI_API_KEY_COMMAND) export OPENAI_API_KEY_COMMAND="${OPENAI_API_KEY_COMMAND:-$2}" ;;
        OPENAI_BASE_URL) export OPENAI_BASE_URL="${OPENAI_BASE_URL:-$2}" ;;
        GEMINI_API_KEY) export GEMINI_API_KEY="${GEMINI_API_KEY:-$2}" ;;
        GEMINI_API_KEY_FILE) export GEMINI_API_KEY_FILE="${GEMINI_API_KEY_FILE:-$2}" ;;
        GEMINI_API_KEY_COMMAND) export GEMINI_API_KEY_COMMAND="${GEMINI_API_KEY_COMMAND:-$2}" ;;
        GEMINI_BASE_URL) export GEMINI_BASE_URL="${GEMINI_BASE_URL:-$2}" ;;
        *) return 1 ;;
    esac
}

# cp_assignments FILE: its assignments, as NAME=VALUE lines without quotes.
cp_assignments() (
    exec <"$1"
    number=0
    return_character=$(printf '\r')
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        wrong() { cp_fail "$1" "line $number: $2" "${3-}"; }
        line=${line%"$return_character"}
        line=${line#"${line%%[![:blank:]]*}"}
        line=${line#export }
        name=${line%%=*}
        value=${line#*=}
        case $line in
            '' | '#'*) continue ;;
            [A-Z]*=*) ;;
            *) wrong "$1" 'expected NAME=VALUE' 'this file is read and never executed' || exit 1 ;;
        esac
        case $value in
            \'*\'*)
                value=${value#\'}
                after=${value#*\'}
                value=${value%%\'*}
                ;;
            \"*\"*)
                value=${value#\"}
                after=${value#*\"}
                value=${value%%\"*}
                case $value in *[\$\`\\]*) wrong "$1" 'nothing is expanded in a value' "write '…' around a literal value" || exit 1 ;; esac
                ;;
            *)
                after=${value#"${value%%[[:blank:]]*}"}
                value=${value%%[[:blank:]]*}
                case $value in *[\$\`\\\'\"]*) wrong "$1" 'nothing is expanded in a value' "write '…' around a literal value" || exit 1 ;; esac
                ;;
        esac
        after=${after#"${after%%[![:blank:]]*}"}
        case $after in '' | '#'*) ;; *) wrong "$1" "unexpected '$after' after the value" 'quote a value with blanks' || exit 1 ;; esac
        # Names of the older file that have no meaning here are ignored.
        (cp_set "$name" x) || case $name in
            SHELLCLAW_*) continue ;;
            *) wrong "$1" "$name is not read from this file" 'cp.sh(7) lists the names; set others in the environment' || exit 1 ;;
        esac
        printf '%s=%s\n' "$name" "$value"
    done
)

# cp_newest: the last line of each name, as a file that is sourced would leave it; a name of ours before the older names for it.
cp_newest() {
    awk '
        { name = substr($0, 1, index($0, "=") - 1); line[name] = $0 }
        END {
            for (rank = 0; rank < 3; rank++) for (name in line) {
                older = name !~ /^SHELLCLAW_/ ? 0 : name ~ /_(DEFAULT_AGENT|TOOLS_DIR)$/ ? 2 : 1
                if (older == rank) print line[name]
            }
        }'
}

# cp_agent: the id of the agent.
cp_agent() (
    agent=${SHELLCLAW_AGENT_ID:-${CP_AGENT-}}
    if [ -z "$agent" ]; then agent=$(cp-shell config get agent --format text) || exit $?; fi
    case $agent in *[!A-Za-z0-9_-]*) cp_fail cp.sh "'$agent' is not a valid agent id: use letters, digits, _ and -" || exit 2 ;; esac
    printf '%s\n' "$agent"
)

# cp_is_ledger FILE: whether its first line is chained, so that a bare line would break it.
cp_is_ledger() (
    [ -f "$1" ] && IFS= read -r first <"$1" || exit 1
    case $first in '{"seq":'*'"prev":"sha256:'*'"hash":"sha256:'*) ;; *) exit 1 ;; esac
)

# cp_session_of WORD: the operand for cp-session, if the word means a session. False for a file of the caller's.
cp_session_of() (
    word=${1:-${CP_SESSION-}}
    # Without a word cp-session reports that none was given.
    [ -n "$word" ] || exit 0
    case $word in
        SES-* | */*) ;;
        *) word=./$word ;;
    esac
    case $word in
        SES-*) ;;
        *) [ -d "$word" ] || cp_is_ledger "$word" || exit 1 ;;
    esac
    printf '%s\n' "$word"
)

# cp_lock FILE: creates it if it is absent, and locks it until the subshell ends. Files that the subshell creates after that are private.
cp_lock() {
    command -v flock >/dev/null || cp_fail cp.sh 'flock is not on PATH' 'install util-linux' || return 1
    umask 077
    # ksh hands an open file on only where that is written out.
    # Without an assignment before it zsh gives this exec the status of an earlier substitution.
    locked=$1
    command exec 9>>"$locked" || return 1
    flock 9 9>&9
}

# cp_archive FILE: gives it a second, new name with the time in it.
cp_archive() (
    base=${1%.jsonl}.$(date -u +%Y%m%dT%H%M%SZ)
    archive=$base.jsonl
    number=1
    # ln never replaces another file.
    until ln -- "$1" "$archive" 2>/dev/null; do
        [ -e "$archive" ] || cp_fail cp.sh "$archive: cannot be created" || exit 1
        number=$((number + 1))
        archive=$base-$number.jsonl
    done
)

# cp_plain FILE FILTER ARGUMENT…: appends what jq makes of the entry that cp-log makes of the row on standard input: without
# secrets, and with the clock of the programs.
cp_plain() (
    file=$1 filter=$2
    case $file in -*) file=./$file ;; esac
    shift 2
    cp_scratch || exit 1
    cp-log append --rows --sync none -f "$scratch/line" "$@" >/dev/null || exit 1
    line=$(tail -n 1 "$scratch/line" | jq -c "$filter"' | if any(.content, .message; type == "object") then error("too long for a line: store it in a session") else . end') || exit 1
    cp_lock "$file" || exit 1
    # An unfinished line of another writer is not continued.
    if [ -s "$file" ] && [ -n "$(tail -c 1 "$file")" ]; then echo >>"$file" || exit 1; fi
    cp_put "$line
" >>"$file"
)

# cp_conversation AGENT CONTINUE: the session to speak in: the one that CP_SESSION names, the agent's current one, or a new one.
cp_conversation() (
    if [ -n "${CP_SESSION-}" ]; then
        printf '%s\n' "$CP_SESSION"
    elif [ "$2" = yes ]; then
        cp_lock_agent "$1" || exit 1
        # A session that has ended is not continued.
        if session=$(cp_current "$1") && cp-session show --session "$session" | jq -e '.data.ended | not' >/dev/null; then
            printf '%s\n' "$session"
            exit 0
        fi
        session=$(cp-session start --agent "$1" --format text) && cp_point "$1" "$session" && printf '%s\n' "$session"
    else
        cp-session start --agent "$1" --format text
    fi
)

# cp_delete SESSION: deletes it.
cp_delete() (
    token=$(cp-session delete "$1" --dangerous --dry-run --quiet 2>/dev/null | jq -r '.data.confirm_token // empty')
    cp-session delete "$1" --dangerous --confirm="$token" --quiet >/dev/null 2>&1
)

# cp_discard AGENT SESSION STATUS: a session that was started for a call which failed. It is deleted, or ended where a model was asked:
# that stays on the ledger. One with turns, or in which a person can go on, stays as it is.
cp_discard() (
    [ "$3" -ne 9 ] && [ "$(cp-session count --session "$2" --format text)" = 0 ] || exit 0
    directory=$(cp-session show --session "$2" | jq -r .data.directory) || exit 1
    if grep -qsF '"event":"llm.request"' -- "$directory"/ledger/*.jsonl; then
        cp-session end "$2" >/dev/null
    else
        cp_lock_agent "$1" && cp_delete "$2"
    fi
)

# cp_reopened SESSION: its id. One that has ended is opened again.
cp_reopened() (
    shown=$(cp-session show "$1") || exit $?
    session=$(cp_put "$shown" | jq -r .data.session_id)
    if cp_put "$shown" | jq -e .data.ended >/dev/null; then cp-session reopen "$session" >/dev/null || exit $?; fi
    printf '%s\n' "$session"
)

# cp_keep AGENT SESSION: from now on this is the agent's current session, unless CP_SESSION names one.
cp_keep() (
    [ -z "${CP_SESSION-}" ] || exit 0
    cp_lock_agent "$1" && cp_point "$1" "$2"
)

# cp_current AGENT: the id of the agent's current session. False where there is none.
cp_current() (
    link=$CP_HOME/agents/$1/sessions/current.jsonl
    [ -L "$link" ] && [ -f "$link" ] && target=$(readlink -- "$link") || exit 1
    target=${target%/*}
    printf '%s\n' "${target##*/}"
)

# cp_lock_agent AGENT: locks its links until the subshell ends. The lock is elsewhere: only agents that exist have a directory.
cp_lock_agent() {
    (umask 077 && mkdir -p -- "$CP_HOME/state/current") && cp_lock "$CP_HOME/state/current/$1"
}

# cp_point AGENT SESSION: moves the agent's links. The caller has the lock.
cp_point() (
    directory=$(cp-session show --session "$2" | jq -r .data.directory) || exit 1
    agent=$CP_HOME/agents/$1
    mkdir -p -- "$agent/sessions" || exit 1
    cp_link "$agent/sessions/current.jsonl" "$directory/session.jsonl" ../../.. &&
        cp_link "$agent/agent.jsonl" "$directory/ledger/llm.jsonl" ../..
)

# cp_link LINK TARGET UP: a link that stays valid when the home is moved. A file of that name is archived first.
cp_link() (
    case $2 in "$CP_HOME"/*) target=$3/${2#"$CP_HOME"/} ;; *) target=$2 ;; esac
    if [ -e "$1" ] && ! [ -L "$1" ]; then cp_archive "$1" || exit 1; fi
    rm -f -- "$1.new" && ln -s -- "$target" "$1.new" && mv -f -- "$1.new" "$1"
)

# cp_prompt SESSION AGENT CONTINUE ARGUMENT…: the prompt, with the history if it is to be continued. An empty agent is the session's.
cp_prompt() (
    session=$1 agent=$2 mode=isolated
    if [ "$3" = yes ]; then mode=persistent; fi
    shift 3
    if [ -n "$agent" ]; then set -- --agent "$agent" "$@"; fi
    cp-compose --session "$session" --mode "$mode" --input text "$@"
)

# cp_answer SESSION PROGRAM ARGUMENT…: lets the program answer the prompt on standard input, stores the turn in the session and
# prints the answer. The status is that of the first program that failed.
cp_answer() (
    # The statuses are checked here, whatever the caller's shell does about failures.
    set +e
    session=$1
    shift
    records=/dev/null
    if [ -n "${LOG_FILE-}" ]; then
        cp_scratch || exit 1
        records=$scratch/records
    fi
    terminal=false
    if [ -t 1 ]; then terminal=true && set -- "$@" --stream; fi
    # The answer bypasses the substitution that collects the statuses.
    {
        statuses=$(
            {
                {
                    "$@" --session "$session" 3>&- 4>&- | cp-session tee --session "$session" 3>&- 4>&-
                    echo "stored:$?" >&3
                } | tee "$records" 3>&- 4>&- | {
                    said=$(cp_words "$terminal" 2>&1 >&4 3>&- 4>&-)
                    printed=$?
                    # Messages of jq about its output are reported below.
                    case $printed in 0 | 1) [ -z "$said" ] || printf '%s\n' "$said" >&2 ;; esac
                    echo "printed:$printed" >&3
                }
            } 3>&1
        )
    } 4>&1
    if [ -n "${LOG_FILE-}" ]; then cp_log_rounds <"$records"; fi
    code=1
    case $statuses in *stored:*) code=${statuses#*stored:} && code=${code%%[!0-9]*} ;; esac
    case $code$statuses in
        # A reader that closes early is not a failure, and may be known of before the turn is stored.
        0*printed:0* | 0*printed:141* | 0*printed:269*) ;;
        0*) cp_fail cp.sh 'the answer is stored but could not be printed' || exit 1 ;;
    esac
    exit "$code"
)

# cp_words [TERMINAL]: prints the text of the last message; on a terminal the text as it arrives. On a failure it prints the hints.
cp_words() {
    jq -nj --unbuffered --argjson terminal "${1:-false}" '
        def words: if type == "string" then . else [.[] | select(.type == "text") | .text] | join("") end;
        def line: if . == "" or endswith("\n") then . else . + "\n" end;
        # Control characters of a model must not reach the terminal.
        def harmless: gsub("[\\x00-\\x08\\x0b-\\x1f\\x7f\\x{80}-\\x{9f}]"; "");
        foreach inputs as $r ({last: "", hints: "", begun: false};
            .out = ""
            | if $r.type == "delta" then
                if $terminal then .out = ($r.data.text // "" | harmless) | .begun = (.begun or .out != "") else . end
              elif $r.type == "message" then
                ($r.data.content | words | line) as $said
                | .last = $said
                | if $terminal then .out = (if .begun then "\n" else $said | harmless end) else . end
                | .begun = false
              else . end
            | .hints = .hints + ($r.error.details // {} | [(.hint // empty | "  Hint: \(gsub("\n"; "\n  "))\n"), (.resume // empty | "  Resume: \(.)\n")] | join(""))
            | if $r.meta == null then .
              elif $r.ok then if $terminal then . else .out = .last end
              else .failed = true | if .begun then .out = "\n" else . end
              end;
            .out, if .failed then .hints | halt_error(1) else empty end)'
}

# cp_log_rounds: logs the records on standard input as lines on LOG_FILE.
cp_log_rounds() {
    if [ -z "${LOG_FILE-}" ]; then
        cat >/dev/null
        return
    fi
    jq -c --unbuffered '
        def words: if type == "string" then . else [.[] | select(.type == "text") | .text] | join("") end;
        if .type == "item" and .data.event == "iteration" then ["iteration", "\(.data.iteration)"]
        elif .type == "message" then
            (.data.input[]? | select(.role == "user") | .content | words | select(. != "") | ["request", .]),
            (.data.content | words | select(. != "") | ["response", .])
        elif .type == "tool_call" then ["tool_call", "\(.data.name) \(.data.input | tojson)"]
        elif .type == "tool_result" then ["tool_result", "\(.data.name)\(if .data.is_error then " failed" else "" end): \(.data.content | words)"]
        elif .ok == false and .type != "summary" then ["error", "\(.error.code): \(.error.message)"]
        else empty end' |
        while IFS= read -r cp_line; do
            log_event "$(cp_put "$cp_line" | jq -r '.[0]')" "$(cp_put "$cp_line" | jq -r '.[1]')"
        done
}

# cp_loop TOOLS ARGUMENT…: cp-toolloop with these tools. Only the tools of a list may be called.
cp_loop() (
    tools=$1
    shift
    case $tools in
        *.json)
            cp_scratch || exit 1
            cp_catalogue "$tools" "$scratch" || exit 2
            # An empty name allows none.
            allowed=$(jq -r 'map(.name) | join(",")' "$scratch/tools.json") || exit 2
            set -- --tools "$scratch/tools.json" --allow "$allowed" "$@"
            ;;
        *) set -- --tools "$tools" "$@" ;;
    esac
    cp-toolloop "$@"
)

# cp_catalogue FILE DIRECTORY: the list of tools as cp-toolloop reads it, in DIRECTORY, with links to their executables.
cp_catalogue() (
    jq -e 'if type == "object" then .tools else . end
        | map((.function // .) | .parameters = (.parameters // .input_schema // {type: "object"}) | del(.input_schema))
        | if all(.name | type == "string" and test("^[A-Za-z0-9_-]+$")) then . else error("a tool without a name") end' "$1" >"$2/tools.json" 2>"$2/error" ||
        cp_fail cp.sh "$1: not a list of tools: $(cat "$2/error")" 'each is {"name", "description", "parameters"}' || exit 1
    beside=$(dirname -- "$1")
    mkdir "$2/bin" || exit 1
    jq -r '.[].name' "$2/tools.json" | while IFS= read -r name; do
        for file in "${CP_TOOLS_DIR:-$beside/bin}/$name" "${CP_TOOLS_DIR:-$beside/bin}/$name.sh" "$beside/bin/$name" "$beside/$name"; do
            if ! [ -f "$file" ] || ! [ -x "$file" ]; then continue; fi
            ln -s -- "$(CDPATH='' cd -P -- "$(dirname -- "$file")" && pwd)/${file##*/}" "$2/bin/$name"
            break
        done
    done
)
