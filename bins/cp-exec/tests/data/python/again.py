import os, sys
left = int(sys.argv[1])
if left: os.execv(sys.executable, ['python3', __file__, str(left - 1)])
print('to the end')
