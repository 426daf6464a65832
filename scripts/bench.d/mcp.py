"""Times the bridge: `mcp.py serve N` and `mcp.py proxy N` print milliseconds; `mcp.py server` is the server behind it."""

import json
import statistics
import subprocess
import sys
import time


def server():
    results = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}},
        "tools/list": {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "x"}]},
    }
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": results.get(message["method"], {})}
            print(json.dumps(answer), flush=True)


def measured(command, count, tool, arguments):
    """Milliseconds until the greeting, those of a call, and the most memory in MiB."""
    begun = time.perf_counter()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(number, method, params):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        process.stdin.write((json.dumps(message) + "\n").encode())
        process.stdin.flush()
        while json.loads(process.stdout.readline()).get("id") != number:
            pass

    client = {"name": "bench", "version": "1"}
    ask(0, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
    greeted = time.perf_counter() - begun
    process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    calls = []
    for number in range(1, count + 10):
        begun = time.perf_counter()
        ask(number, "tools/call", {"name": tool, "arguments": arguments})
        calls.append(time.perf_counter() - begun)
    with open(f"/proc/{process.pid}/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    process.stdin.close()
    process.wait()
    return greeted * 1e3, statistics.median(calls[10:]) * 1e3, peak / 1024


if sys.argv[1] == "server":
    server()
elif sys.argv[1] == "serve":
    print(*measured(["cp-mcp", "serve"], int(sys.argv[2]), "cp_read", {"path": "file"}))
else:
    echo = [sys.executable, __file__, "server"]
    direct = measured(echo, int(sys.argv[2]), "look", {})
    through = measured(["cp-mcp", "proxy", "--server", "echo", "--", *echo], int(sys.argv[2]), "look", {})
    print(direct[1], through[1], through[2])
