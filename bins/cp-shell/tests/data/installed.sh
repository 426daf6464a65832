set -e
mkdir -p $VERSION/bin $VERSION/share/cp-tools/skill ../../bin
ln "$SHELL_PROGRAM" $VERSION/bin/cp-shell 2>/dev/null || cp "$SHELL_PROGRAM" $VERSION/bin/cp-shell
echo echo >$VERSION/bin/cp-gone
printf '#!/bin/sh\necho cp-log %s\n' $VERSION >$VERSION/bin/cp-log
chmod +x $VERSION/bin/cp-*
cp "$INSTALLER" $VERSION/install
printf -- '---\nname: cp-tools\n---\nold\n' >$VERSION/share/cp-tools/skill/SKILL.md
ln -s $VERSION current
for n in cp-shell cp-gone; do ln -s ../lib/cp-tools/current/bin/$n ../../bin; done
cd $VERSION
find . -type f ! -name SHA256SUMS ! -name .sums -printf '%P\n' | sort | xargs sha256sum >.sums
mv .sums SHA256SUMS
