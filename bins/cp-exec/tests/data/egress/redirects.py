import urllib.request
for path in ['own', 'address', 'metadata', 'name']:
    attempt(path, lambda: urllib.request.urlopen('http://registry.test/' + path, timeout=5).read())
