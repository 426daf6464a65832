"""Measures cp-toolloop: a turn against its parts, the way to the first request, memory, and a call of a server."""
import json
import os
import statistics
import subprocess
import sys
import time

HERE = os.getcwd()
CALL = {"tool_calls": [{"name": "system", "input": {"operation": "get_info"}}]}


def executable(name, text):
    path = os.path.join(HERE, name)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)
    return path


def script(count):
    with open("script", "w") as file:
        file.write((json.dumps(CALL) + "\n") * count)
    return ["--backend", "stub", "--stub-script", "script"]


def record(kind, data):
    return json.dumps({"ok": True, "schema_version": "1.0", "type": kind, "data": data}, separators=(",", ":")) + "\n"


def coprocess(*command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1 << 20)


def asked(process, line):
    """Sends a line, waits for one back, and tells how long that took."""
    began = time.perf_counter()
    process.stdin.write(line)
    process.stdin.flush()
    answer = process.stdout.readline()
    return time.perf_counter() - began, json.loads(answer)


def loop(*arguments):
    command = ["cp-toolloop", "--quiet", "--max-iterations", "1000000", *arguments, "--", "go"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def turns(count):
    began = time.perf_counter()
    lines = loop(*script(count)).communicate()[0].splitlines()
    whole = time.perf_counter() - began
    prompt = {"messages": [{"role": "user", "content": "go"}], "history": 0, "tools": tools()}
    model = coprocess("cp-llm", *script(count), "--ledger", "model.jsonl", "--run", "RUN-20260101-00000000")
    tool = coprocess("cp-exec", "--ledger", "tool.jsonl")
    model_time = tool_time = 0.0
    for line in lines:
        told = json.loads(line)
        if told.get("type") != "message":
            continue
        prompt["messages"] += told["data"]["input"] if len(prompt["messages"]) > 1 else []
        took, _ = asked(model, record("prompt", prompt))
        model_time += took
        prompt["messages"].append({"role": "assistant", "content": told["data"]["content"]})
        prompt["history"] = len(prompt["messages"])
        for call in told["data"]["tool_calls"]:
            took, _ = asked(tool, record("tool_call", call))
            tool_time += took
    for process in (model, tool):
        process.communicate()
    per_turn = [1000 * seconds / count for seconds in (whole - model_time - tool_time, whole, model_time, tool_time)]
    print(*("%.3f" % milliseconds for milliseconds in per_turn))


def tools():
    listed = json.loads(subprocess.run(["cp-toolloop", "tools"], stdout=subprocess.PIPE, check=True).stdout)
    return [{name: tool[name] for name in ("name", "description", "input_schema")} for tool in listed["data"]["items"]]


def first(count):
    model = executable("model", "#!/bin/sh\nread -r line\ndate +%s.%N >first\n")
    times = []
    for _ in range(count):
        began = time.time()
        loop("--llm", model).communicate()
        with open("first") as file:
            times.append(1000 * (float(file.read()) - began))
    print("%.2f" % statistics.median(times))


def memory(count):
    process = loop(*script(count))
    seen = 0
    for line in process.stdout:
        seen += '"event":"iteration"' in line[:120]
        if seen > count:
            break
    with open("/proc/%d/status" % process.pid) as status:
        peak = next(line for line in status if line.startswith("VmHWM"))
    process.communicate()
    print("%.1f" % (int(peak.split()[1]) / 1024))


SERVER = """#!/usr/bin/python3
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "id" not in m: continue
    if m["method"] == "server/discover": result = {"supportedVersions": ["2026-07-28"], "capabilities": {}}
    elif m["method"] == "tools/list": result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
    else: result = {"content": [{"type": "text", "text": "ok"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": result}), flush=True)
"""


def server(count):
    path = executable("server", SERVER)
    with open("script", "w") as file:
        calls = [{"name": "look", "input": {"n": n}} for n in range(count)]
        file.write(json.dumps({"tool_calls": calls}) + "\n")
    process = loop("--mcp", "s=" + path, "--backend", "stub", "--stub-script", "script")
    times, began = [], 0.0
    for line in process.stdout:
        if line.startswith('{"ok":true,"schema_version":"1.0","type":"tool_call"'):
            began = time.perf_counter()
        elif '"type":"tool_result"' in line[:60]:
            times.append(time.perf_counter() - began)
    direct = coprocess(path)
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "look", "arguments": {}}}
    alone = [asked(direct, json.dumps(request) + "\n")[0] for _ in range(count)]
    direct.communicate()
    print("%.4f %.4f" % (1000 * statistics.median(times), 1000 * statistics.median(alone)))


{"turns": turns, "first": first, "memory": memory, "server": server}[sys.argv[1]](int(sys.argv[2]))
