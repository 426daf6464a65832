#!/usr/bin/env python3
import json, os, subprocess, sys, urllib.request
if "--version" in sys.argv: print("7.0 (stand-in)"); sys.exit()
def model(messages):
    body = json.dumps({"tools": [{"name": "Bash"}], "messages": messages}).encode()
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    return urllib.request.urlopen(urllib.request.Request(url, body)).read().decode()
mode = open("mode").read().strip()
if mode == "broken": sys.exit("cannot start")
def carry_out(command):
    if mode == "untrusted": return subprocess.run(["sh", "-c", command], capture_output=True, text=True).stderr
    if mode == "open": return subprocess.run(["sh", "-c", command], capture_output=True, text=True).stderr
    if mode not in ["asks", "rules", "lists"]: return "hook says: " + mode
    line = json.load(open(os.path.expanduser("~/.claude/settings.json")))["hooks"]["PreToolUse"][0]["hooks"][0]["command"]
    ours = line.split(" hook ")[0]
    run = lambda words: subprocess.run(["sh", "-c", ours + words + ' -c "$0"', command], capture_output=True, text=True)
    decision = json.loads(run(" check").stdout.splitlines()[-1])["data"]
    if decision["decision"] == "allow": return run(" --format raw").stdout
    return "[" + line + "] refused: " + decision["reason"]
messages = ["do it"]
while True:
    events = [json.loads(line[6:]) for line in model(messages).splitlines() if line.startswith("data: ")]
    calls = [e["delta"]["partial_json"] for e in events if e.get("delta", {}).get("type") == "input_json_delta"]
    if not calls: break
    command = json.loads(calls[0]).get("command")
    note = json.loads(calls[0]).get("note")
    if note and mode in ["open", "lists"]: open(sys.argv[sys.argv.index("--add-dir") + 1] + "/" + note, "w").close()
    denied = command is None or "cp-exec-denies" in command
    messages += [{"call": calls[0]}, {"result": "denied by the host" if denied and mode != "rules" else carry_out(command or "true")}]
