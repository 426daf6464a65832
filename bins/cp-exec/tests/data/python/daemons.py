import os, sys, time
word = sys.argv[1]
how = sys.argv[2].split(",")
def sleeper(name):
    os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", word + name])
print("partial", flush=True)
if "child" in how:
    if os.fork() == 0: sleeper("-child")
if "grandchild" in how:
    if os.fork() == 0:
        if os.fork() == 0: sleeper("-grandchild")
        time.sleep(600)
if "setsid" in how:
    if os.fork() == 0:
        os.setsid()
        sleeper("-setsid")
if "double" in how:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: sleeper("-double")
        os._exit(0)
if "deaf" in how:
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(float(sys.argv[3]))
