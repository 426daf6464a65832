def works(name):
    try: return ask(name, 80) == b'x'
    except OSError: return False
print(sum(works(f'n{i}.test') for i in range(140)))
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for i in range(5000):
    n = b'f%06d' % i
    u.sendto(b'\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x07' + n + b'\x03org\0\0\x01\0\x01', ('127.0.0.53', 53))
for i in range(300): works(f'm{i}.org')
print(works('n0.test'))
