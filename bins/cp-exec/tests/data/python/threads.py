import threading as t
t.stack_size(65536); e = t.Event()
a = [t.Thread(target=e.wait) for _ in range(2000)]
[x.start() for x in a]; e.set(); [x.join() for x in a]; print(len(a))
