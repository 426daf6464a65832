import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
end, count = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    if libc.syscall(316, -100, b"d", -100, b"l", 2) == 0: count += 1
    for name in ("d", "l"):
        try: open(name + "/.bashrc", "w").write("the run's own")
        except OSError: pass
if os.path.islink("d"): libc.syscall(316, -100, b"d", -100, b"l", 2)
print(count)
