import ctypes, os
c = ctypes.CDLL(None, use_errno=True)
q = c.mq_open(b"/q%d" % os.getpid(), os.O_CREAT | os.O_RDWR, 0o600, None)
b = ctypes.create_string_buffer(8192)
print(q > 0, ctypes.get_errno(), c.mq_send(q, b"x", 1, 0), c.mq_receive(q, b, 8192, None))
c.mq_unlink(b"/q%d" % os.getpid())
