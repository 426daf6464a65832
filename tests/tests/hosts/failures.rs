//! What an agent does when its hook fails: the table of HOOKS in cp-exec(1).

use super::agent::{Agent, Host, hooked};

/// Fails as the command asks that the call would run. In the place of our shell, it runs each line.
const FAILING: &str = "#!/bin/sh
case \" $* \" in *' hook shell '*) for line; do :; done; exec sh -c \"$line\" ;; esac
case $(cat) in
*try-cut*) printf '{\"hookSpecificOutput\":'; kill -KILL $$ ;;
*try-status*) exit 1 ;;
*try-shell*) case $(cat /proc/$PPID/comm) in *sh) kill -KILL $PPID ;; esac; exit 2 ;;
*try-killed*) kill -KILL $$ ;;
*try-silent*) exit 2 ;;
*try-slow*) exec sleep 20 ;;
*try-broken*) printf '{\"hookSpecificOutput\":' ;;
*try-denied*) echo '{\"decision\": \"deny\", \"reason\": \"not today\", \"permissionDecision\": \"deny\", \"permissionDecisionReason\": \"not today\"}'; echo 'not today' >&2; exit 2 ;;
esac
";

/// Fewer seconds than the slow one takes.
const LIMIT: u32 = 2;

/// The last is of the shell that runs a line of ours, and there need not be one for the name of a program.
const FAILURES: [&str; 7] = ["status", "killed", "cut", "silent", "slow", "broken", "shell"];

/// The calls that ran although the hook failed. A call that the hook refuses never runs, and one that it passes does.
fn opened(agent: &Agent, failures: &[&'static str]) -> Vec<&'static str> {
    let names: Vec<&str> = failures.iter().copied().chain(["denied", "passed"]).collect();
    let turns = names.iter().map(|name| vec![agent.host.shell(&format!("touch try-{name}"))]).collect();
    let (outcome, model) = agent.run(turns);
    let ran = |name: &str| agent.place.work.join(format!("try-{name}")).exists();
    assert!(ran("passed") && !ran("denied"), "{:?}: {outcome:?}\n{model:?}", agent.host);
    assert!(model.results().iter().any(|result| result.contains("not today")), "{:?}: {model:?}", agent.host);
    failures.iter().copied().filter(|name| ran(name)).collect()
}

fn runs_without_the_program(agent: &Agent) -> bool {
    let (outcome, model) = agent.run(vec![vec![agent.host.shell("touch try-missing")]]);
    assert_eq!(model.results().len(), 1, "{:?}: {outcome:?}\n{model:?}", agent.host);
    agent.place.work.join("try-missing").exists()
}

/// The configuration of an agent with this hook, in which another program replaces ours.
fn installed(host: Host, program: Option<&str>) -> Agent {
    let agent = Agent::new(host);
    agent.govern("");
    // Nobody waits half a minute here.
    let file = if host == Host::Claude { ".claude/settings.json" } else { ".codex/hooks.json" };
    let text = agent.place.user.read(file).replace(": 30,", ": 2,").replace(": 30\n", ": 2\n");
    agent.place.user.write(file, text);
    let ours = agent.place.root.join("bin/cp-exec");
    std::fs::remove_file(&ours).unwrap();
    if let Some(text) = program {
        agent.place.root.executable("bin/cp-exec", text);
    }
    agent
}

#[test]
fn our_installed_hook_is_closed_by_all_that_it_can_be_closed_by() {
    for host in hooked() {
        let agent = installed(host, Some(FAILING));
        let open: &[&str] = if host == Host::Claude { &["broken"] } else { &["silent", "slow", "broken", "shell"] };
        assert_eq!(opened(&agent, &FAILURES), open, "{host:?}");
        assert!(!runs_without_the_program(&installed(host, None)), "{host:?}");
    }
}

#[test]
fn a_hook_that_fails_leaves_agents_open() {
    for agent in hooked().map(Agent::new) {
        let program = agent.place.root.executable("hook", FAILING);
        agent.hook(program.to_str().unwrap(), LIMIT);
        let mut open = vec!["status", "killed", "cut", "slow", "broken"];
        if agent.host == Host::Codex {
            open.insert(3, "silent");
        }
        assert_eq!(opened(&agent, &FAILURES[..6]), open, "{:?}", agent.host);
        agent.hook(agent.place.root.join("nothing").to_str().unwrap(), LIMIT);
        assert!(runs_without_the_program(&agent), "{:?}", agent.host);
    }
}
