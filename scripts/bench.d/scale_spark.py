"""Prints how much longer the rows of `some.jsonl` take through Spark's pipe, in one partition, than through the filter alone: the best of three."""
import os
import subprocess
import time

from pyspark.sql import SparkSession

here = os.getcwd()
with open("filter", "w") as script:
    script.write(f"#!/bin/sh\nexec cp-llm --quiet --backend stub --rows --row-failures ok --ledger {here}/S.jsonl\n")
os.chmod("filter", 0o755)
context = SparkSession.builder.master("local[1]").getOrCreate().sparkContext
environment = {name: os.environ[name] for name in ("PATH", "HOME", "CP_HOME")}


def bare(_):
    subprocess.run("./filter <some.jsonl >bare", shell=True, check=True)


def piped(run):
    rows = context.textFile(f"file://{here}/some.jsonl", 1)
    rows.pipe(f"{here}/filter", env=environment, checkCode=True).saveAsTextFile(f"file://{here}/spark{run}")


def best(way):
    times = []
    for run in range(4):
        begun = time.perf_counter()
        way(run)
        times.append(time.perf_counter() - begun)
    # The first starts what the others use.
    return min(times[1:])


print(best(piped) / best(bare))
