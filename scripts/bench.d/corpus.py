"""Prints N rows for `cp-log append --rows`: 300 to 3000 bytes, one in fifty a deploy, always the same."""
import json
import random
import sys

random.seed(1)
WORDS = "the service answered a request from the gateway in time and wrote what it did to the log of the day".split()
for n in range(int(sys.argv[1])):
    text = " ".join(random.choices(WORDS, k=random.randint(35, 500)))
    event = "deploy" if n % 50 == 0 else random.choice(["request", "tick", "llm.response"])
    row = {"event": event, "agent": "bench", "message": text, "n": n, "tags": ["a", "b"], "ok": True, "took": n / 7}
    print(json.dumps(row, separators=(",", ":")))
