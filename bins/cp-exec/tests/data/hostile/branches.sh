set -e
git init -q -b main . && git config user.name x && git config user.email x@y
echo old > f && git add f && git commit -qm one && git branch x
git commit -qm two --allow-empty && git tag v
printf 'old new\nold new\n' > f && echo keep > canary && echo other > other
