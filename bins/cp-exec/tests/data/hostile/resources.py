# What a command may use up. Outside, the same is had: each asks for little more than the limits of the test.
GROUP = "using up the machine"
def forks():
    started = []
    try:
        for _ in range(V["processes"] + 60):
            pid = os.fork()
            if pid == 0:
                time.sleep(30); os._exit(0)
            started.append(pid)
    finally:
        for pid in started: os.kill(pid, signal.SIGKILL)
        for pid in started: os.waitpid(pid, 0)

def threads():
    import threading
    threading.stack_size(65536)
    try:
        for _ in range(V["processes"] + 60):
            threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
    except RuntimeError as e: raise OSError(errno.EAGAIN, str(e))

def wrote(directory, bytes):
    with open(directory + "/" + fresh("large"), "wb") as f:
        for _ in range(bytes >> 20): f.write(bytes_of_a_megabyte)
        f.flush()
bytes_of_a_megabyte = b"x" * (1 << 20)

def core():
    # A core would be written to the working directory, or handed to a program of the machine.
    resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    same(resource.getrlimit(resource.RLIMIT_CORE)[0], 1 << 20)

for name, layers, f in [
    ("processes", "pid rlimits cgroup", forks),
    ("threads", "pid rlimits cgroup", threads),
    ("temporary_files", "mount", lambda: wrote("/tmp", V["scratch"] + (8 << 20))),
    ("shared_memory_files", "mount", lambda: wrote("/dev/shm", V["scratch"] + (8 << 20))),
    ("core_file", "rlimits seccomp", core),
    ("raise_processor_time", "rlimits", lambda: resource.setrlimit(resource.RLIMIT_CPU, (V["cpu"] + 1,) * 2)),
]: probe(GROUP, "use_" + name, layers, f)
