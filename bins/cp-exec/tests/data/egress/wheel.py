import sys, zipfile
with zipfile.ZipFile(sys.argv[1], 'w') as z:
    z.writestr('demo.py', 'print("installed")\n')
    z.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n')
    z.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    z.writestr('demo-1.0.dist-info/RECORD', 'demo.py,,\ndemo-1.0.dist-info/METADATA,,\ndemo-1.0.dist-info/WHEEL,,\ndemo-1.0.dist-info/RECORD,,\n')
