//! Rows over many processes: the engines of cp-scale(7) run here as the page shows them, and keep its guarantees, as do
//! `scripts/spark.py` and `scripts/verify.sql`.

use std::fs::File;
use std::time::Duration;

use cp_testkit::{Place, Program, Signal, counterpart, repository, required, until};
use cp_tests::transcript::{block_below, examples_of_page, steps};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

fn page() -> String {
    std::fs::read_to_string(repository().join("man/cp-scale.7")).unwrap()
}

fn script(name: &str) -> String {
    std::fs::read_to_string(repository().join("scripts").join(name)).unwrap()
}

/// Rows in as many shards, and the script of the page that answers one.
fn job(rows: usize, shards: usize) -> Place {
    let place = Place::new();
    let row =
        |n| json!({"messages": [{"role": "user", "content": format!("row {n}")}], "row": {"id": n}}).to_string() + "\n";
    place.work.write("rows.jsonl", (0..rows).map(row).collect::<String>());
    let script: Vec<String> = examples_of_page(&page())
        .iter()
        .flat_map(|block| steps(&block.text))
        .map(|step| step.command)
        .filter(|command| command.contains("shard <<'END'") || command.starts_with("chmod"))
        .collect();
    place.sh(&script.join("\n")).success();
    place.sh(&block_below(&page(), "ENGINES").replace("l/64", &format!("l/{shards}"))).success();
    place
}

/// A script of the job that finds the programs of this directory first.
fn with_fakes(place: &Place, script: &str) -> Program {
    place.shell("sh", &format!("PATH=$PWD/bin:$PATH\n{script}"))
}

/// The records of all files of a directory.
fn records(place: &Place, directory: &str) -> Vec<Value> {
    let names = place.work.at(directory).names();
    names
        .iter()
        .filter(|name| !name.starts_with(['_', '.']))
        .flat_map(|name| place.work.records(format!("{directory}/{name}")))
        .collect()
}

/// The numbers of the rows that have an answer, sorted.
fn answered(records: &[Value]) -> Vec<u64> {
    let mut ids: Vec<u64> = records.iter().filter_map(|record| record["data"]["row"]["id"].as_u64()).collect();
    ids.sort_unstable();
    ids
}

/// How many requests were sent, by the ledgers.
fn paid(place: &Place) -> usize {
    records(place, "ledgers").iter().filter(|entry| entry["event"] == "llm.request").count()
}

/// Asserts that each row has one answer, that so many shards are closed, and that nothing was paid twice but what was
/// under way at so many kills.
#[track_caller]
fn assert_whole(place: &Place, rows: usize, shards: usize, directory: &str, kills: usize) {
    let records = records(place, directory);
    assert_eq!(answered(&records), (0..rows as u64).collect::<Vec<_>>());
    let closed: Vec<&Value> = records.iter().filter(|record| record.get("meta").is_some()).collect();
    let totals: u64 = closed.iter().filter_map(|record| record["data"]["total"].as_u64()).sum();
    assert!(closed.iter().all(|record| record["ok"] == true), "{closed:?}");
    assert_eq!((closed.len(), totals), (shards, rows as u64));
    let paid = paid(place);
    assert!((rows..=rows + 8 * kills).contains(&paid), "{paid} paid for {rows} rows");
    place.sh("cp-log verify ledgers").success();
}

#[test]
fn the_demo_holds_what_it_says() {
    if counterpart("parallel").is_none() {
        return;
    }
    let ran = Place::new().sh("scale-demo 400 8").success();
    assert!(ran.stdout.matches("\nyes ").count() >= 9 && !ran.stdout.contains("NO "), "{}", ran.stdout);
    assert!(ran.stdout.contains(" requests a row, "), "{}", ran.stdout);
}

/// As ssh, but for the other computer.
const SSH: &str = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\necho \"$1\" >>hosts\nshift\n[ \"$1\" != -- ] || shift\nexec env SHELL=/bin/sh sh -c \"$*\"\n";

/// As sbatch, but for the cluster: runs the tasks of an array, some at a time and in any order.
const SBATCH: &str = r#"#!/bin/sh
range=$(sed -n 's/^#SBATCH.*--array=\([0-9]*\)-\([0-9]*\).*/\1 \2/p' "$1")
seq $range | shuf | xargs -P 4 -I@ env SLURM_ARRAY_TASK_ID=@ sh "$1"
"#;

#[test]
fn each_engine_of_the_page_answers_all_rows_in_full_and_empty_shards() {
    let engines = [
        ("GNU parallel", "sh engine"),
        ("GNU parallel over ssh", "sh engine"),
        ("make", "make -s -k -j 4 -f engine"),
        ("Slurm", "sbatch engine"),
    ];
    for (title, run) in engines {
        if counterpart(run.split(' ').next().filter(|name| *name == "make").unwrap_or("parallel")).is_none() {
            continue;
        }
        let place = job(50, 64);
        place.work.executable("bin/ssh", SSH);
        place.work.executable("bin/sbatch", SBATCH);
        place.work.write("engine", block_below(&page(), title));
        // One shard has been begun and cut off: the engine goes on with it.
        let begun =
            (0..64).map(|n| format!("{n:04}")).find(|name| !place.work.read(format!("in/{name}")).is_empty()).unwrap();
        place.sh(&format!("./shard {begun} <in/{begun} | head -c 300 >out/{begun}")).success();
        let ran = with_fakes(&place, run).run();
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{title}: {ran:?}");
        assert_whole(&place, 50, 64, "out", 0);
        if title.ends_with("ssh") {
            let hosts = place.work.read("hosts");
            assert!(hosts.contains("a.example") && hosts.contains("b.example"), "{hosts}");
        }
        if run.starts_with("make") {
            let again = with_fakes(&place, "make -k -j 4 -f engine").run().success();
            assert!(again.stdout.contains("Nothing to be done"), "{again:?}");
        }
    }
}

#[test]
fn shards_that_are_killed_anywhere_lose_nothing_and_pay_little_twice() {
    let place = job(400, 8);
    place.work.write("slow", "{\"content\":\"x\",\"delay_ms\":20}\n".repeat(50));
    let shard = |n: usize| {
        let name = format!("000{n}");
        let out = File::options().create(true).append(true).open(place.work.join("out").join(&name)).unwrap();
        place.shell("sh", &format!("exec ./shard {name} --skip-done out/{name} --stub-script slow")).stdout_to(out)
    };
    // Half of the rows, so that none ends before it is killed, which is after another number of answers each time.
    let running: Vec<_> = (0..8)
        .map(|n| {
            let mut process = shard(n).start();
            let rows = place.work.read(format!("in/000{n}"));
            process.write(rows.split_inclusive('\n').take(25).collect::<String>());
            process
        })
        .collect();
    for (n, process) in running.into_iter().enumerate() {
        until("some answers", || place.work.read(format!("out/000{n}")).lines().count() > (n * 5) % 19);
        process.signal(Signal::KILL);
        assert_eq!(process.wait().status, 128 + 9);
    }
    for n in 0..8 {
        assert!(!place.work.read(format!("out/000{n}")).contains("\"meta\""));
        shard(n).stdin(place.work.bytes(format!("in/000{n}"))).run().success();
    }
    assert_whole(&place, 400, 8, "out", 8);
}

#[test]
fn sql_script_verifies_chain() {
    let place = Place::new();
    let python =
        counterpart("python").filter(|python| place.program(python).args(["-c", "import duckdb"]).run().status == 0);
    if !required("duckdb (.ci/run installs it)", python.is_some()) {
        return;
    }
    place.work.write("verify.sql", script("verify.sql"));
    place.sh(r#"printf '"quoted", \\ and ‘more’ \360\237\246\212\nlast\n' | cp-log append -f whole.jsonl"#).success();
    let whole = place.work.read("whole.jsonl");
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    let script = "import duckdb, json; print(json.dumps(duckdb.execute(open('verify.sql').read()).fetchone()))";
    let counted = |lines: &[&str]| -> (u64, u64) {
        place.work.write("ledger.jsonl", lines.concat());
        let ran = place.program(python.as_ref().unwrap()).args(["-c", script]).run().success();
        serde_json::from_str(&ran.stdout).unwrap()
    };
    assert_eq!(counted(&lines), (lines.len() as u64, 0));
    for at in 0..lines.len() {
        let changed = lines[at].replacen("20", "21", 1);
        let mut other = lines.clone();
        other[at] = &changed;
        assert_ne!(counted(&other).1, 0, "line {at} changed");
        if at + 1 < lines.len() {
            let body = &changed[..changed.len() - 83];
            let hash = Sha256::digest(body).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
            let forged = format!("{body},\"hash\":\"sha256:{hash}\"}}\n");
            other[at] = &forged;
            assert_ne!(counted(&other).1, 0, "line {at} changed, and hashed again");
        }
        let twice = [&lines[..=at], &lines[at..]].concat();
        assert_ne!(counted(&twice).1, 0, "line {at} twice");
    }
    for at in 0..lines.len() - 1 {
        let dropped = [&lines[..at], &lines[at + 1..]].concat();
        assert_ne!(counted(&dropped).1, 0, "line {at} dropped");
        let mut swapped = lines.clone();
        swapped.swap(at, at + 1);
        assert_ne!(counted(&swapped).1, 0, "line {at} swapped");
    }
}

/// Kills itself once, in the middle of a shard.
const KILLED_ONCE: &str = r#"#!/bin/sh
PATH=${PATH#*:}
case $* in
*ledgers/0003.jsonl*) if mkdir "$(dirname "$0")/killed" 2>/dev/null; then head -n 3 | cp-llm "$@" | head -n 2; kill -9 $$; fi ;;
esac
exec cp-llm "$@"
"#;

/// Spark, which `.ci/run` installs with `CP_LONG`.
#[test]
fn spark_runs_a_killed_shard_again_and_pays_once() {
    if !cp_testkit::is_long() || counterpart("java").is_none() {
        return;
    }
    let Some(submit) = counterpart("spark-submit") else { return };
    let python = submit.parent().unwrap();
    let spark = |place: &Place, line: &str| {
        let environment = format!(
            "export PATH=$PWD/bin:$PATH:{} SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON={0}/python\n",
            python.display()
        );
        place.work.executable("bin/cp-llm", KILLED_ONCE);
        let ran = place.shell("sh", &(environment + line)).limit(Duration::from_mins(10)).run();
        assert_eq!(ran.status, 0, "{line}: {ran:?}");
        assert!(place.work.at("bin").names().contains(&"killed".to_owned()), "{line}: none was killed");
        assert_whole(place, 400, 8, "records", 1);
    };
    // Four failures of a task are one too many; a cluster of two workers, each a process with one core.
    for master in ["local[2,4]", "local-cluster[2,1,1024]"] {
        let place = job(400, 8);
        place.work.write("engine.py", script("spark.py").replace(", 64)", ", 8)"));
        spark(&place, &format!("spark-submit --master '{master}' engine.py"));
        assert!(place.work.at("answers.parquet").names().contains(&"_SUCCESS".to_owned()));
    }
}
