set -e
git init -q -b main --template= . && git config user.name x && git config user.email x@y
mkdir sub
echo old > f && echo old > sub/f && git add f sub/f && git commit -qm one
echo new > f && git commit -qam two && git tag v1 && git branch keep
git clone -q --bare --template= . remote.git && git branch -f keep HEAD~1 && git tag v2
echo mine > f
printf '#!/bin/sh\n: > canary\n' > evil && chmod +x evil
echo 'open("canary","w")' > other.py
echo 'touch canary' > other.sh
echo f > names
echo '{"name":"x","version":"1.0.0","scripts":{"prepublishOnly":"./evil"}}' > package.json
