"""Prints the median and the 99th percentile, in milliseconds, from the sending of a word to the line that shows it."""
import json
import statistics
import subprocess
import sys
import time

times = []
with subprocess.Popen(["cp-llm", "-m", "m", "--stream", "--", "hi"], stdout=subprocess.PIPE, bufsize=0) as child:
    buffer = b""
    while piece := child.stdout.read(65536):
        come = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        *lines, buffer = (buffer + piece).split(b"\n")
        for record in map(json.loads, lines):
            if record["type"] == "delta":
                times.append((come - int(record["data"]["text"])) / 1e6)
if len(times) < 100:
    sys.exit(f"only {len(times)} words came")
print(statistics.median(times), statistics.quantiles(times, n=100)[98])
