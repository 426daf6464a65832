set -e; cd "$TREE"; mkdir -p lib registries ledger work_orders/ho3 installed/PKG-BASELINE-HO3-000
columns=status,version,plane_id,created_at
echo "framework_id,title,$columns" >registries/frameworks_registry.csv
echo "spec_id,title,framework_id,$columns" >registries/specs_registry.csv
echo file_path,owner_package_id,sha256,classification,installed_at >registries/file_ownership.csv
for n in 0 1 2 3 4 5; do echo "FMWK-$n,\"Standard $n, v1\",active,1.0.0,ho3,x" >>registries/frameworks_registry.csv; done
s=0
while [ $s -lt 20 ]; do
    mkdir -p specs/SPEC-$s installed/PKG-$s
    echo "SPEC-$s,Spec,FMWK-$((s % 6)),active,1.0.0,ho3,x" >>registries/specs_registry.csv
    { echo "spec_id: SPEC-$s"; echo 'assets:'; } >specs/SPEC-$s/manifest.yaml
    echo "{\"package_id\":\"PKG-$s\",\"spec_id\":\"SPEC-$s\",\"version\":\"1.0.0\",\"assets\":[]}" >installed/PKG-$s/manifest.json
    echo "{\"work_order_id\":\"WO-20260203-$s\",\"spec_id\":\"SPEC-$s\",\"status\":\"approved\"}" >work_orders/ho3/WO-$s.json
    echo "{\"event_type\":\"PACKAGE_INSTALLED\",\"submission_id\":\"PKG-$s\",\"id\":\"LED-$s\",\"previous_hash\":\"\"}" >ledger/governance-20260203-$((1000 + s)).jsonl
    f=$s
    while [ $f -lt 116 ]; do
        owner=PKG-$s; [ $((f % 2)) = 1 ] || owner=PKG-BASELINE-HO3-000
        echo $f >lib/f$f.py; echo "  - lib/f$f.py" >>specs/SPEC-$s/manifest.yaml
        echo "lib/f$f.py,$owner,sha256:0,library,x" >>registries/file_ownership.csv
        f=$((f + 20))
    done
    s=$((s + 1))
done
echo '{"package_id":"PKG-BASELINE-HO3-000","version":"1.0.0","assets":[]}' >installed/PKG-BASELINE-HO3-000/manifest.json
echo '{"tier":"HOT"}' >tier.json
