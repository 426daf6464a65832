"""Prints the median time, in microseconds, from a line's write to its arrival through a follower."""
import statistics
import subprocess
import time

subprocess.run(["cp-log", "append", "-f", "F.jsonl", "start"], check=True, stdout=subprocess.DEVNULL)


def median(follower, feed):
    with subprocess.Popen(follower, stdout=subprocess.PIPE, bufsize=0) as child:
        time.sleep(0.3)
        times = []
        for n in range(200):
            written = feed(n)
            child.stdout.read(1)
            times.append(time.perf_counter() - written)
            line = b""
            while not line.endswith(b"\n"):
                line += child.stdout.read(65536)
            time.sleep(0.002)
        child.kill()
    return statistics.median(times) * 1e6


# The writer is a coprocess, so that the time to start a program is not in the figure: measurement begins when the line is in the file.
def plain(n):
    with open("T.log", "ab", buffering=0) as log:
        log.write(b"line %d\n" % n)
    return time.perf_counter()


open("T.log", "wb").close()
print("tail", median(["tail", "-f", "-n", "0", "T.log"], plain))

lines = open("F.jsonl", "rb").read()
with open("G.jsonl", "wb") as copy:
    copy.write(lines)
subprocess.run("seq 300 | cp-log append -f F.jsonl --sync none", shell=True, check=True, stdout=subprocess.DEVNULL)
whole = open("F.jsonl", "rb").read()[len(lines):].splitlines(keepends=True)


def ledger(n):
    with open("G.jsonl", "ab", buffering=0) as log:
        log.write(whole[n])
    return time.perf_counter()


print("cp-log", median(["cp-log", "follow", "G.jsonl", "--format", "raw"], ledger))
