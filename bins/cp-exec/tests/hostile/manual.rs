//! The tables of SECURITY.md and of the manual against what the probes and the matrix show.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::{Bench, all, of, policy};
use super::matrix::ROWS;
use crate::exec::everyone;

/// The rows of a table below its head: each row begins with `begin`, and `between` separates its cells.
fn table(file: &str, head: &str, begin: &str, between: &str) -> Vec<Vec<String>> {
    let page = std::fs::read_to_string(cp_testkit::repository().join(file)).unwrap();
    let (_, rest) = page.split_once(head).unwrap_or_else(|| panic!("{file} has no table {head}"));
    let rows = rest.lines().skip(1).map_while(|line| line.strip_prefix(begin));
    rows.map(|row| row.trim_end_matches(" |").split(between).map(str::to_owned).collect()).collect()
}

#[test]
fn security_page_lists_every_attack_with_its_layers() {
    cp_testkit::needs!("python3");
    let bench = Bench::new(everyone()[0], &policy(""));
    let script = format!("{}\n{}", all(), of("resources"));
    // Nothing is attempted: what the probes are for is all that is asked.
    let probes = bench.listed(&script);
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for probe in probes.values() {
        found
            .entry(probe.group.clone())
            .or_default()
            .extend(probe.layers.iter().map(|layer| layer.replace('+', " with ")));
    }
    let written: BTreeMap<String, BTreeSet<String>> =
        table("SECURITY.md", "| attack | refused by |\n|---|---|", "| ", " | ")
            .into_iter()
            .map(|row| (row[0].clone(), row[1].split(", ").map(str::to_owned).collect()))
            .collect();
    assert_eq!(found, written);
    assert!(probes.len() >= 280, "{}", probes.len());
}

#[test]
fn manual_describes_run_without_each_layer() {
    let rows = table("man/cp-exec.1", ".It Sy Layer Ta Sy Recorded in Ta Sy Without it", ".It ", " Ta ");
    let said = |layer: &str| {
        let is_namespace = ["mount", "pid", "network", "ipc", "uts"].contains(&layer);
        let row = rows.iter().find(|row| row[0] == if is_namespace { "namespaces" } else { layer });
        row.unwrap_or_else(|| panic!("{layer} is not in the table"))[2].starts_with("nothing runs")
    };
    for (layer, refused) in ROWS.iter().filter(|(layer, _)| *layer != "none") {
        assert_eq!(said(layer), refused.is_some(), "{layer}");
    }
    // These have a test of their own in `matrix`.
    assert!(said("rlimits") && !said("cgroup"));
}
