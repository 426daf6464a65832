# Calls that the filter does not know are missing; it knows fchmodat2, and the kernel decides about that.
def error_of(number):
    ctypes.set_errno(0)
    libc.syscall(number, -1, 0, 0, 0, 0, 0)
    return ctypes.get_errno()
def expect(number, *errors):
    if error_of(number) not in errors: raise OSError(error_of(number), "another error")
for number in list(range(463, 600)) + [4095, 0x3fffffff, 0x40000000 + 39, 0x7fffffff]:
    attempt("%d" % number, lambda: expect(number, errno.ENOSYS))
attempt("fchmodat2", lambda: expect(452, errno.EBADF, errno.EFAULT))
