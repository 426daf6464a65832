# The CycloneDX list of what `cargo tree` printed: a line `name vVERSION …|LICENSE` for each crate, and for each of our own a path.
[inputs | capture("^(?<name>\\S+) v(?<version>\\S+)(?<rest>.*)\\|(?<license>.*)$") | select(.rest | contains("/") | not)] | unique_by(.name, .version)
| map("pkg:cargo/\(.name)@\(.version)" as $url | {
    type: "library", "bom-ref": $url, name, version, purl: $url,
    licenses: [{expression: (.license | gsub("(?<=[^ ])/(?=[^ ])"; " OR "))}]
})
| {
    bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
    metadata: {timestamp: $time, component: {type: "application", "bom-ref": "cp-tools", name: "cp-tools", version: $version}},
    components: .
}
