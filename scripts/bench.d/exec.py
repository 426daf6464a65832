"""Measures cp-exec as a coprocess: checks a second, the cost of a run, and what outlives a deadline."""
import glob
import json
import os
import resource
import subprocess
import sys
import time

HERE = os.getcwd()


def request(*argv, **more):
    return json.dumps({"tool": "shell", "operation": "execute_command", "arguments": {"argv": argv, **more}}) + "\n"


def coprocess(home, *args):
    command = ["cp-exec", "--home", home, "--quiet", *args]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=HERE, text=True)


def cpu(*whose):
    """Seconds of this process, or of all that it has waited for."""
    usages = (resource.getrusage(who) for who in whose)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


OURS = resource.RUSAGE_SELF
THEIRS = resource.RUSAGE_CHILDREN


def check(home, count):
    lines = [request("git", "status", "--short"), request("true"), request("git", "push", "--force")]
    text = "".join(lines[n % 3] for n in range(count))
    with coprocess(home, "check") as process:
        process.communicate(lines[0])
    begun = time.perf_counter()
    with coprocess(home, "check") as process:
        answers, _ = process.communicate(text)
    assert answers.count('"decision"') == count, answers[:500]
    print(count / (time.perf_counter() - begun))


def direct(count):
    # What a spawn costs its parent is a part of it.
    begun, used = time.perf_counter(), cpu(OURS, THEIRS)
    for _ in range(count):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    print((cpu(OURS, THEIRS) - used) / count * 1e3, (time.perf_counter() - begun) / count * 1e3)


def spawn(home, count):
    """Cpu of a run, wall time from a request to its result, and the layers there were."""
    line, used, times = request("true"), cpu(THEIRS), []
    with coprocess(home) as process:
        for _ in range(count):
            begun = time.perf_counter()
            process.stdin.write(line)
            process.stdin.flush()
            answer = process.stdout.readline()
            times.append(time.perf_counter() - begun)
        process.communicate()
    data = json.loads(answer)["data"]
    assert data["return_code"] == 0, answer
    enforcement = data["enforcement"]
    layers = ",".join(enforcement["namespaces"]) or "no namespace"
    landlock = f"landlock {enforcement['landlock']['status']}, seccomp {enforcement['seccomp']}"
    print((cpu(THEIRS) - used) / count * 1e3, sorted(times)[count // 2] * 1e3, f"{landlock}, {layers}")


def line(home, programs, count):
    """Cpu and wall time of a command line that starts this many programs."""
    text = json.dumps({"tool": "bash", "arguments": {"command": "/bin/true;" * programs}}) + "\n"
    used, times = cpu(THEIRS), []
    with coprocess(home) as process:
        for _ in range(count):
            begun = time.perf_counter()
            process.stdin.write(text)
            process.stdin.flush()
            answer = process.stdout.readline()
            assert json.loads(answer)["ok"], answer
            times.append(time.perf_counter() - begun)
        process.communicate()
    print((cpu(THEIRS) - used) / count * 1e3, sorted(times)[count // 2] * 1e3)


def hook(home, count):
    """The median wall time of a host's question, from start to exit, in milliseconds."""
    install = ["cp-exec", "--home", home, "hook", "install", "claude", "--project", "."]
    preview = json.loads(subprocess.run([*install, "--dry-run"], capture_output=True, check=True, cwd=HERE).stdout)
    subprocess.run([*install, "--confirm", preview["data"]["confirm_token"]], check=True, capture_output=True, cwd=HERE)
    # The host has our program of its lines from the settings.
    environment = {**os.environ, "CLAUDE_CODE_SHELL_PREFIX": f"{home}/bin/claude-shell"}
    question = {"hook_event_name": "PreToolUse", "session_id": "bench", "cwd": HERE, "tool_name": "Bash", "tool_input": {"command": "true"}}
    times = []
    for call in range(count + 1):
        text = json.dumps({**question, "tool_use_id": f"call-{call}"})
        begun = time.perf_counter()
        command = ["cp-exec", "--home", home, "hook", "claude"]
        ran = subprocess.run(command, input=text, capture_output=True, text=True, cwd=HERE, env=environment)
        times.append(time.perf_counter() - begun)
        # The line goes to the program, which asks nobody.
        assert (ran.returncode, ran.stdout) == (0, ""), ran
    # The first starts the session.
    print(sorted(times[1:])[count // 2] * 1e3)


def survivors(home, count):
    word = f"600.{os.getpid()}"
    script = f"sleep {word} & setsid sleep {word} & (setsid sleep {word} &) ; trap '' TERM; sleep {word}"
    processes = [coprocess(home) for _ in range(16)]
    for process in processes:
        process.stdin.write(request("sh", "-c", script, timeout=0.2) * (count // len(processes) + 1))
        process.stdin.flush()
    answers = "".join(process.communicate()[0] for process in processes)
    assert answers.count("E_TIMEOUT") >= count, answers[-500:]
    found = 0
    for file in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(file, "rb") as line:
                found += word.encode() in line.read().split(b"\0")
        except OSError:
            pass
    print(found)


measured, *rest = sys.argv[1:]
{"check": check, "direct": direct, "hook": hook, "line": line, "spawn": spawn, "survivors": survivors}[measured](
    *(int(word) if word.isdigit() else word for word in rest)
)
