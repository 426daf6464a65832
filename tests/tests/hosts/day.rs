//! A day of an agent under `cp-exec agent`: its commands print what they print without it, or the reason why not.

use super::agent::{Agent, Host, hooked};
use super::model::Turn;

/// What the model reads of a step.
enum Read {
    /// This, in the sandbox and outside.
    Same(&'static str),
    /// This in the sandbox only.
    Refused(&'static str),
}

use Read::{Refused, Same};

/// The project of the owner, and what lies beside it.
const PROJECT: &str = r#"
git config --global user.name Nina && git config --global user.email n@example.com
git config --global init.defaultBranch main
git init -q && git init -q --bare ../next.git && echo aside >../aside.txt
mkdir checks src && printf 'a\nb\n' >src/a.txt && echo c >src/b.txt && echo read >README
printf 'import unittest\nclass T(unittest.TestCase):\n    def test(self): self.assertTrue(True)\n' >checks/test_a.py
printf 'test:\n\t@echo made\n' >Makefile
printf '{"name": "day", "version": "1.0.0", "scripts": {"test": "node -e \\"console.log(6 * 7)\\""}}\n' >package.json
git add -A && git commit -qm first
"#;

/// Ordinary steps of a day, none of which needs another: what the model runs, and what it reads.
const STEPS: [(&str, Read); 34] = [
    ("printf 'one\\ntwo\\n' >notes && sed -i s/two/three/ notes && cat notes", Same("three")),
    ("python3 -m unittest discover -s checks 2>&1 | tail -n 1", Same("OK")),
    ("make test", Same("made")),
    (
        "echo x >added && git add added && git commit -qm add && git log -1 --format='%an %ae %s'",
        Same("Nina n@example.com add"),
    ),
    (
        "git checkout -q -b topic && echo t >t && git add t && git commit -qm topic && git checkout -q main && \
         git merge -q --no-ff -m merged topic && git log --format=%s -1",
        Same("merged"),
    ),
    ("git branch side && git branch --list side", Same("side")),
    ("git branch other && git branch -m other trunk", Refused("configuration, which is read-only")),
    (
        "echo more >>README && git stash -q && git status --short README && git stash pop -q && \
         git status --short README && git commit -qam more",
        Same(" M README"),
    ),
    ("git push ../next.git HEAD:main", Refused("needs approval; run cp-exec approve")),
    (
        "git branch base && echo b >b && git add b && git commit -qm b && git checkout -q base && echo r >r && \
         git add r && git commit -qm r && git rebase -q main && git log --format=%s -2 && git checkout -q main",
        Same("r\nb"),
    ),
    ("git tag -a v1 -m v1 && git describe --exact-match", Same("v1")),
    (
        "git worktree add -q -b tree .trees/a && (cd .trees/a && echo w >w && git add w && git commit -qm w) && \
         git log -1 --format=%s tree && git worktree remove .trees/a",
        Same("w"),
    ),
    (
        "echo changed >>README && git diff --stat | tail -n 1 && git commit -qam changed && \
         git show --stat | tail -n 1",
        Same("1 file changed"),
    ),
    (
        "git init -q made && cd made && git config user.name Made && git commit -q --allow-empty -m m && \
         git log -1 --format='%an %ae'",
        Same("Made n@example.com"),
    ),
    ("npm test --silent", Same("42")),
    ("curl -sS https://name.invalid/", Refused("to allow it: cp-exec allow network name.invalid")),
    ("node -e 'console.log(Object.keys(require(\"os\").networkInterfaces()).includes(\"lo\"))'", Same("true")),
    (
        "python3 -u -m http.server 0 --bind 127.0.0.1 >port 2>&1 & until grep -q port port; do sleep 0.1; done; \
         curl -sS localhost:$(sed -n 's/.*port \\([0-9]*\\).*/\\1/p' port)/src/b.txt; kill $!; wait; echo ended",
        Same("c\nended"),
    ),
    ("(echo b; echo a) | sort | tr a-z A-Z", Same("A\nB")),
    ("cat >here <<'END'\n$HOME `x`\nEND\ncat here", Same("$HOME `x`")),
    (
        "find src -name '*.txt' -print0 | xargs -0 grep -c . | awk -F: '{n += $2} END {print n}' | sed 's/^/n=/'",
        Same("n=3"),
    ),
    ("printf '#!/bin/sh\\necho ran \"$1\"\\n' >run && chmod +x run && ./run x", Same("ran x")),
    ("cat ../aside.txt", Refused("No such file or directory")),
    ("mkdir -p d/e && touch d/e/f && mv d/e/f d/g && rm -r d/e && ls d", Same("g")),
    ("echo t >/tmp/day.$$ && cat /tmp/day.$$ && rm /tmp/day.$$", Same("t")),
    ("file=$(mktemp -p /var/tmp) && echo v >$file && cat $file && rm $file", Same("v")),
    ("export DAY=x; env | grep ^DAY; DAY=y sh -c 'echo $DAY'", Same("DAY=x\ny")),
    ("ls -la ~ | head -n 1 | cut -d ' ' -f 1", Same("total")),
    ("ln -s src/b.txt link && readlink link && cat link", Same("src/b.txt\nc")),
    ("tar -czf src.tgz src && tar -tzf src.tgz | sort", Same("src/b.txt")),
    ("script -qec tty /dev/null | tr -d '0-9\\r'", Same("/dev/pts/")),
    ("python3 -c 'import pty; pty.spawn([\"echo\", \"spawned\"])'", Same("spawned")),
    ("python3 -c 'from multiprocessing import Pool; print(Pool(2).map(abs, [-1, -2]))'", Same("[1, 2]")),
    ("sleep 100 & kill $!; wait; seq 3 | paste -sd+", Same("1+2+3")),
];

/// What a day of the steps with these commands printed: their output and status.
fn day(host: Host, commands: &[&str], is_contained: bool) -> Vec<String> {
    let agent = Agent::new(host);
    let place = &agent.place;
    place.sh(&format!("set -e\n{PROJECT}")).success();
    place.program("cp-exec").args(["policy", "init", "--for", "."]).run().success();
    let wrapped =
        |command: &&str| -> Turn { vec![host.shell(&format!("echo '<<<'; ( {command}\n) 2>&1; echo \">>>$?\""))] };
    let turns = commands.iter().map(wrapped).collect();
    let (outcome, model) = if is_contained { agent.run_contained(turns, &[]) } else { agent.run(turns) };
    let results = model.results();
    assert_eq!((outcome.status, results.len()), (0, commands.len()), "{host:?}: {outcome:?}\n{model:?}");
    let root = place.root.display().to_string();
    let printed = |result: &String| {
        let begin = result.split_once("<<<\n").map_or(result.as_str(), |(_, rest)| rest);
        let end = begin.rfind(">>>").map_or(begin, |end| &begin[..(end + 4).min(begin.len())]);
        end.replace(&root, "ROOT")
    };
    results.iter().map(printed).collect()
}

#[test]
fn day_of_an_agent_reads_inside_as_outside() {
    let sampled: Vec<_> = (0..).zip(&STEPS).filter(|(index, _)| cp_testkit::is_sampled(*index, 0, 7)).collect();
    let commands: Vec<&str> = sampled.iter().map(|(_, (command, _))| *command).collect();
    let mut wrong = Vec::new();
    for host in hooked() {
        let (outside, inside) = (day(host, &commands, false), day(host, &commands, true));
        for ((_, (command, read)), (outside, inside)) in sampled.iter().zip(outside.into_iter().zip(inside)) {
            let is_right = match read {
                Same(text) => inside == outside && inside.contains(text),
                Refused(text) => inside.contains(text) && !inside.ends_with(">>>0") && !outside.contains(text),
            };
            if !is_right {
                wrong.push(format!("{host:?}: {command}\noutside: {outside}\ninside: {inside}\n"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), commands.len(), wrong.join("\n"));
}
