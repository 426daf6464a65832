import ctypes, mmap, os, signal, sys, time
memory = mmap.mmap(-1, 4096)
memory[3:17] = b"/usr/bin/true\0"
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
name = ctypes.c_uint32.from_address(start + 12)
true, tail = (int.from_bytes(word, "little") for word in (b"true", b"tail"))
libc = ctypes.CDLL(None)
words = (ctypes.c_char_p * 4)(b"x", b"-f", b"/dev/null", None)
flipper = 0
if sys.argv[1] == "race":
    flipper = os.fork()
    if flipper == 0:
        while True: name.value = tail; name.value = true
children = []
for _ in range(400):
    child = os.fork()
    if child == 0:
        libc.execve(ctypes.c_void_p(start + 3), words, None)
        os._exit(1)
    children.append(child)
    if flipper: time.sleep(0.01)
    else: os.waitpid(child, 0)
for child in children if flipper else []: os.kill(child, signal.SIGKILL)
if flipper: os.kill(flipper, signal.SIGKILL)
print("to the end")
