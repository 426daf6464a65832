import ctypes, errno, os, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    result = libc.syscall(number, *args)
    if result < 0: raise OSError(ctypes.get_errno(), "syscall")
    return result
def attempt(name, f):
    try:
        f(); print(name, "done", flush=True)
    except (OSError, ValueError, subprocess.CalledProcessError):
        print(name, "refused", flush=True)
