# What every line begins with, then for each verb the lines that show what it can print.
session() { S=$(cp-session start --format text); export CP_SESSION="$S"; }
turns() { session; for m in a b c; do cp-session append -- $m; cp-session append --role assistant -- $m; done >/dev/null; }
signed() { { cp-log append -f L hello; cp-log keygen K; cp-log checkpoint -f L --sign-with K; } >/dev/null; cp-log prove 1 -f L --format raw >p; }
allow() { mkdir -p "$CP_HOME/config"; printf '[exec]\nallowed_commands = ["echo", "false", "rm", "sleep"]\n%s\n' "$1" >"$CP_HOME/config/policy.toml"; }
call() { printf '{"ok":true,"schema_version":"1.0","type":"tool_call","data":{"id":"1","name":"%s","input":%s}}\n' "$1" "$2"; }
question() { printf '{"hook_event_name":"PreToolUse","session_id":"s","tool_use_id":"c","tool_name":"%s","tool_input":{%s}}\n' "$1" "$2"; }
token() { jq -r .data.confirm_token; }
make() { printf '%s\n' '{"tool_calls":[{"name":"filesystem","input":{"operation":"write_file","path":"new","content":"x"}}]}' '{"content":"Done."}' >script; cp-toolloop --backend stub --stub-script script -- hello >/dev/null; }
play() { printf '%s\n' '{"content":"I look.","tool_calls":[{"name":"system","input":{"operation":"get_info"}}]}' '{"content":"Done."}' >script; }

# cp-compose
cp-compose -s 'be brief' -- hello
cp-compose --explain -s 'be brief' -- hello
printf 'memo' >c; cp-compose --context c -- hello
turns; cp-compose --session $S -- hello
echo 'say {{a}}' >t; printf '{"a":1}\n{"a":2}\n' | cp-compose --rows --template t
echo 'say {{a}}' >t; printf '{"a":1}\n{"a":2}\n' | cp-compose --rows --explain --template t

# cp-mcp call
cp-mcp call --list --mcp 'cp=cp-mcp serve' --json </dev/null
call cp/cp_check '{"command":"ls"}' | cp-mcp call --mcp 'cp=cp-mcp serve' --json
cp-mcp call --list --mcp s=/bin/false --json </dev/null
cp-mcp call

# cp-mcp proxy
{ echo '{"jsonrpc":"2.0","method":"hello"}'; sleep 0.5; } | cp-mcp proxy --json --server cat -- /bin/cat
cp-mcp proxy --json --server cat -- /bin/cat </dev/null
cp-mcp proxy

# cp-mcp connect
echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | cp-mcp connect --json http://127.0.0.1:1/mcp
cp-mcp connect --json http://127.0.0.1:1/mcp </dev/null
cp-mcp connect http://example.org/mcp

# cp-exec
allow; cp-exec -- echo hello
allow; cp-exec -- false
cp-exec -- echo hello
allow; cp-exec --timeout 0.2 -- sleep 9
allow; cp-exec -- rm -r x
allow; cp-exec --request-id r -- echo one >/dev/null; cp-exec --request-id r -- echo two
allow; cp-exec -- nosuch
allow; cp-exec -c 'echo hi; id; echo made > new'
allow; cp-exec --dry-run -- echo hello
allow; cp-exec --dry-run -- rm -r x
echo '{"tool":"system","operation":"get_info"}' | cp-exec
echo '{"tool":"system","operation":"get_info"}' | cp-exec --dry-run
allow; call shell '{"command":"echo hi"}' | cp-exec
allow; printf '{"tool":"shell","operation":"execute_command","arguments":{"command":"echo %s"}}\n' one two | cp-exec
printf '{"tool":"system","operation":"get_info"}\n%.0s' 1 2 | cp-exec

# cp-exec approve
cp-exec approve
cp-exec approve abc

# cp-exec check
cp-exec check -- git push --force
cp-exec check -c 'ls; id'
allow; cp-exec check -- echo hi
allow; printf '{"tool":"shell","operation":"execute_command","arguments":{"command":"echo %s"}}\n' one two | cp-exec check
cp-exec check --strict-exit -- git push --force

# cp-exec undo
allow; cp-exec -c 'echo x > new' >/dev/null; cp-exec undo last --confirm $(cp-exec undo last --dry-run | token)
allow; git init -q r; cd r; cp-exec -- echo hi >/dev/null; rm .git/HEAD; cp-exec undo last --git --dry-run
allow; cp-exec -c 'echo x > new' >/dev/null; echo y > new; cp-exec undo last
allow; cp-exec undo 99

# cp-exec hook doctor
cp-exec hook doctor

# cp-exec hook shell
cp-exec hook shell claude 'echo hi'
allow; export CLAUDE_CODE_SESSION_ID=s CLAUDE_CODE_CHILD_SESSION=1; cp-exec hook shell claude 'echo hi'

# cp-exec hook install
cp-exec hook install codex --dry-run
cp-exec hook install claude --project . --confirm $(cp-exec hook install claude --project . --dry-run | token)
cp-exec hook install claude

# cp-exec hook remove
cp-exec hook remove claude
cp-exec hook install codex --confirm $(cp-exec hook install codex --dry-run | token) >/dev/null; cp-exec hook remove codex --dry-run

# cp-mcp serve
allow; echo '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"cp_run","arguments":{"command":"echo hi"}}}' | cp-mcp serve --json

# cp-exec hook
question Bash '"command":"echo hi"' | cp-exec hook claude --format json
allow; question Bash '"command":"echo hi"' | cp-exec hook claude --format json
question Read '"file_path":"a"' | cp-exec hook claude --format json
echo x | cp-exec hook claude --format json

# cp-exec policy init
cp-exec policy init
cp-exec policy init --dry-run
mkdir .git; cp-exec policy init --for .
allow; mkdir .git; cp-exec policy init --for . --dry-run
allow; mkdir .git; cp-exec policy init --for .
cp-exec policy init >/dev/null; cp-exec policy init

# cp-exec policy show
cp-exec policy show
allow; cp-exec policy show

# cp-llm
cp-llm --backend stub -- hello
cp-llm --backend stub --dry-run -- hello
cp-llm --backend stub --stream -- hello
seq 3 | jq -c '{messages:[{role:"user",content:tostring}]}' | cp-llm --backend stub --rows
seq 3 | jq -c '{messages:[{role:"user",content:tostring}]}' | cp-llm --backend stub --rows --dry-run
play; cp-llm --backend stub --stub-script script -- hello
session; cp-compose --session $S --agent default -- hello | cp-llm --backend stub
echo '{"error":{"code":"E_SERVER","message":"down"}}' >s; cp-llm --backend stub --stub-script s --retries 0 -- hi
echo '{"content":"{\"a\":1}"}' >s; echo '{"type":"object"}' >t; cp-llm --backend stub --stub-script s --schema t -- hi
cp-llm --backend stub --replay none -- hi
cp-llm --backend stub --budget-tokens 1 -- hi
cp-llm --backend openai -- hi

# cp-llm batch submit
cp-llm batch submit --backend stub -- hello
seq 3 | jq -c '{messages:[{role:"user",content:tostring}]}' | cp-llm batch submit --backend stub --rows
cp-llm batch submit --backend stub --budget-tokens 1 -- hello
cp-llm batch submit --backend openai -- hello

# cp-llm batch status
cp-llm batch submit --backend stub -- hello >/dev/null; cp-llm batch status
cp-llm batch status

# cp-llm batch result
B=$(cp-llm batch submit --backend stub -- hello | jq -r .data.job_id); cp-llm batch result "$B"
seq 3 | jq -c '{messages:[{role:"user",content:tostring}]}' | cp-llm batch submit --backend stub --rows | jq -r 'select(.type=="item").data.job_id' >b; cp-llm batch result "$(cat b)"
echo '{"error":{"code":"E_SERVER"}}' >s; B=$(cp-llm batch submit --backend stub --stub-script s -- hello | jq -r .data.job_id); cp-llm batch result "$B"

# cp-llm batch cancel
B=$(cp-llm batch submit --backend stub -- hello | jq -r .data.job_id); cp-llm batch cancel "$B"
cp-llm batch cancel BAT-0

# cp-llm models
cp-llm models --backend stub
cp-llm models

# cp-log append
cp-log append hello
mkdir -p "$CP_HOME/config"; echo '[' >"$CP_HOME/config/cp.toml"; cp-log append hello
cp-log append --dry-run hello
seq 3 | cp-log append
seq 3 | cp-log append --dry-run
cp-log append -f "$(printf 'caf\351')" hello
cp-log append --dry-run -f "$(printf 'caf\351')" hello
seq 3 | cp-log append -f "$(printf 'caf\351')"

# cp-log page
cp-log append hello >receipt; cp-log page -o page.html
cp-log append hello >receipt; cp-log page -o receipt
echo hello | cp-log page -

# cp-log bundle
head -c 2000000 /dev/zero | tr '\0' x | cp-log append >/dev/null; cp-log bundle -o b

# cp-log blob
head -c 2000000 /dev/zero | tr '\0' x | cp-log append >/dev/null; cp-log blob $(cp-log query --event log --format raw | jq -r .message.blob)

# cp-log check-proof
signed; sed -n 2p L | cp-log check-proof --trust K.pub p
signed; sed -n 1p L | cp-log check-proof --trust K.pub p
signed; sed -n 1,2p L | cp-log check-proof --trust K.pub p
signed; cp-log query L | cp-log check-proof --trust K.pub p
signed; cp-log query --event log L | cp-log check-proof --trust K.pub p

# cp-log checkpoint
cp-log append x >/dev/null; cp-log keygen C >/dev/null; cp-log checkpoint --sign-with C
cp-log append x >/dev/null; cp-log keygen C >/dev/null; cp-log checkpoint --dry-run --sign-with C
cp-log keygen C >/dev/null; cp-toolloop --backend stub hi >/dev/null; cp-log --run $(cp-toolloop runs --limit 1 --format text | cut -d ' ' -f 1) checkpoint --sign-with C

# cp-log audit

# cp-log create
cp-log create --ledger-name example.com/audit a
cp-log create --dry-run --ledger-name example.com/audit a

# cp-exec allow
allow; cp-exec allow network a.test --dry-run
allow; cp-exec allow env MINE --confirm $(cp-exec allow env MINE --dry-run | token)

# cp-log follow
seq 3 | cp-log append >/dev/null; cp-log follow --last 3 --limit 3

# cp-log keygen
cp-log keygen K
cp-log keygen --dry-run K
cp-log keygen K >/dev/null; cp-log keygen K

# cp-log prove
signed; cp-log prove 0 -f L

# cp-log query
seq 3 | cp-log append >/dev/null; cp-log query
seq 3 | cp-log append >/dev/null; cp-log query --limit 1
session; cp-llm --backend stub --session $S -- hi >/dev/null; cp-log query
cp-log append -f "$(printf 'caf\351')" hello >/dev/null; cp-log query caf*

# cp-log repair
cp-log append -f L x >/dev/null; printf '{"seq":' >>L; cp-log repair --dry-run L
cp-log append -f L x >/dev/null; printf '{"seq":' >>L; cp-log repair --confirm $(cp-log repair --dry-run L | token) L

# cp-log rotate
cp-log append x >/dev/null; cp-log rotate
cp-log append x >/dev/null; cp-log rotate --dry-run

# cp-log stats
cp-llm --backend stub -- hi >/dev/null; cp-log stats
cp-log stats
cp-log append -f L x >/dev/null; echo damage >>L; cp-log stats L

# cp-log tee
cp-llm --backend stub -- hi | cp-log tee L
seq 2 | jq -c '{messages:[{role:"user",content:tostring}]}' | cp-llm --backend stub --rows | cp-log tee L

# cp-log tip
cp-log append x >/dev/null; cp-log tip

# cp-log verify
cp-log append -f L x >/dev/null; cp-log verify L
cp-log append x >/dev/null; cp-log verify
cp-log append -f L x >/dev/null; echo x >>L; cp-log verify L
cp-log append -f "$(printf 'caf\351')" hello >/dev/null; cp-log verify caf*

# cp-session append
session; cp-session append -- hello
session; cp-session append --dry-run -- hello
session; printf '{"content":"a"}\n{"content":"b"}\n' | cp-session append --rows

# cp-session clear
turns; cp-session clear $S
turns; cp-session clear --dry-run $S

# cp-session compact
turns; cp-session compact --keep 2 --backend stub
turns; cp-session compact --keep 2 --backend stub --dry-run
session; cp-session compact --backend stub

# cp-session count
turns; cp-session count $S

# cp-session delete
session; cp-session delete $S --dangerous --dry-run
session; cp-session delete $S --dangerous --confirm $(cp-session delete $S --dangerous --dry-run | token)
session; cp-session delete $S NOSUCH --dangerous --confirm $(cp-session delete $S NOSUCH --dangerous --dry-run | token)
session; cp-session delete $S NOSUCH --dangerous --dry-run

# cp-session end
turns; cp-session end $S
turns; cp-session end $S --dry-run

# cp-session rename
turns; cp-session rename $S talk
turns; cp-session rename $S talk --dry-run

# cp-session reopen
turns; cp-session reopen $S
turns; cp-session end $S >/dev/null; cp-session reopen $S
turns; cp-session end $S >/dev/null; cp-session reopen $S --dry-run

# cp-session export
turns; cp-session export $S
turns; cp-session export $S --dry-run

# cp-session fork
turns; cp-session fork $S
turns; cp-session fork $S --dry-run

# cp-session list
turns; cp-session list
cp-session list

# cp-session load
turns; cp-session load $S
session; cp-session load $S

# cp-session recall
cp-session remember --kind note -- 'the build' >/dev/null; cp-session recall --kind note build
cp-session recall --kind note x

# cp-session remember
cp-session remember --kind note -- 'the build'
cp-session remember --dry-run --kind note -- 'the build'

# cp-session search
turns; cp-session search a
cp-session search a

# cp-session show
turns; cp-session show $S

# cp-session start
cp-session start
cp-session start --mode isolated
cp-session start --dry-run

# cp-session tee
session; cp-llm --backend stub -- hello | cp-session tee $S
session; cp-llm --backend stub -- hello | cp-session tee --dry-run $S
session; seq 2 | jq -c '{messages:[{role:"user",content:tostring}]}' | cp-llm --backend stub --rows | cp-session tee $S

# cp-shell
echo '{"operation":"governed_roots"}' | cp-shell
echo '{"operation":"nonsense"}' | cp-shell
call explain_path '{"path":"lib/x"}' | cp-shell
call explain_path '{"path":"lib/x"}' | sed 's/}}$/},"meta":{"duration_ms":0}}/' | cp-shell

# cp-shell init
cp-shell init
cp-shell init --dry-run
cp-shell init >/dev/null; cp-shell init

# cp-shell config
cp-shell config

# cp-shell config get
cp-shell config get tier
cp-shell config get nonsense

# cp-shell config agent
cp-shell init >/dev/null; cp-shell config agent default soul

# cp-shell register
cp-shell init >/dev/null; echo x >p.md; cp-shell register --dry-run ./p.md
cp-shell init >/dev/null; echo x >p.md; cp-shell register --yes ./p.md
cp-shell init >/dev/null; cp-shell register default --yes

# cp-shell update
cp-shell update
cp-shell --version | cut -d' ' -f2 >latest; cp-shell update --check --from .

# cp-toolloop
cp-toolloop --backend stub -- hello
play; cp-toolloop --backend stub --stub-script script -- hello
play; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello
cp-toolloop --backend stub --stream -- hello

# cp-toolloop cancel
play; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello >/dev/null; cp-toolloop cancel RUN-
play; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello >/dev/null; cp-toolloop cancel --dry-run RUN-

# cp-toolloop undo
make; cp-toolloop undo RUN- --dry-run
make; cp-toolloop undo RUN-
make; rm new; cp-toolloop undo RUN-
make; echo more >>new; cp-toolloop undo RUN-

# cp-toolloop resume
play; head -n 1 script >twice; cat script >>twice; cp-toolloop --backend stub --stub-script twice --stream --max-iterations 1 -- hello >/dev/null; cp-toolloop resume --max-iterations 3 RUN-

# cp-toolloop runs
cp-toolloop --backend stub -- hello >/dev/null; cp-toolloop runs
cp-toolloop runs

# cp-toolloop show
play; cp-toolloop --backend stub --stub-script script -- hello >/dev/null; cp-toolloop show RUN-
play; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello >/dev/null; cp-toolloop show RUN-

# cp-toolloop tools
cp-toolloop tools
printf '#!/bin/sh\necho --describe' >t; chmod +x t; cp-toolloop tools --tools t
