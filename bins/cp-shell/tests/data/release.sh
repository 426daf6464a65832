set -e
rm -rf build v$VERSION
mkdir -p v$VERSION build/cp-tools-$VERSION
cd build/cp-tools-$VERSION
mkdir -p bin share/man/man1 share/cp-tools/skill
echo new >share/man/man1/cp-new.1
echo new >bin/cp-new
for n in cp-shell cp-log; do printf '#!/bin/sh\necho %s %s\n' $n $VERSION >bin/$n; done
chmod +x bin/*
cp "$INSTALLER" install
printf -- '---\nname: cp-tools\n---\n%s\n' $VERSION >share/cp-tools/skill/SKILL.md
eval "$CHANGE"
find . -type f ! -name SHA256SUMS ! -name .sums -printf '%P\n' | sort | xargs sha256sum >.sums
mv .sums SHA256SUMS
eval "$TAMPER"
cd ..
tar -czf ../v$VERSION/$ARCHIVE $PACK cp-tools-$VERSION
cd ..
rm -r build
echo $VERSION >latest
cd v$VERSION
sha256sum $ARCHIVE >SHA256SUMS
