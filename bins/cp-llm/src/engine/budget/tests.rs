use std::path::Path;

use proptest::prelude::*;

use super::*;

fn used(tokens: u64) -> Usage {
    Usage { input_tokens: tokens, ..Usage::default() }
}

fn estimate(tokens: u64) -> Amount {
    Amount { usd: 0.0, tokens }
}

fn sharing(file: &Path, tokens: Option<u64>) -> Budget {
    Budget::open(Limit { usd: None, tokens }, Some(file), None).unwrap().unwrap()
}

fn spend(budget: &Budget, tokens: u64) {
    let ticket = budget.admit(estimate(tokens), &mut |_| ()).unwrap();
    budget.settle(&ticket, Some(&used(tokens))).unwrap();
}

fn content(file: &Path) -> BudgetFile {
    BudgetFile::parse(&std::fs::read(file).unwrap()).unwrap()
}

/// The sum of all reservations.
fn reserved(file: &Path) -> Amount {
    let content = content(file);
    content.taken().minus(content.spent)
}

/// The number of files in the directory of a file.
fn names(file: &Path) -> usize {
    std::fs::read_dir(file.parent().unwrap()).unwrap().count()
}

fn budget_file() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("budget");
    (directory, file)
}

#[test]
fn shared_file_has_no_reservations_after_release() {
    let (_directory, file) = budget_file();
    let (one, two) = (sharing(&file, Some(100)), sharing(&file, None));
    for budget in [&one, &two] {
        let ticket = budget.admit(estimate(10), &mut |_| ()).unwrap();
        assert_eq!(reserved(&file), estimate(10));
        budget.settle(&ticket, Some(&used(45))).unwrap();
    }
    spend(&two, 10);
    assert_eq!(content(&file), BudgetFile { limit: one.limit, spent: estimate(100), ..BudgetFile::default() });
    // The limit is in the file, so it also applies to a process without limits.
    assert_eq!(two.admit(estimate(0), &mut |_| ()).err().unwrap().code(), Code::BudgetExhausted);
    assert_eq!(names(&file), 1);
}

#[test]
fn admit_waits_for_reservations_of_others() {
    let (_directory, file) = budget_file();
    let (one, two) = (sharing(&file, Some(100)), sharing(&file, Some(100)));
    let ticket = one.admit(estimate(100), &mut |_| ()).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut warnings = 0;
            let ticket = two.admit(estimate(50), &mut |_| warnings += 1).unwrap();
            two.settle(&ticket, Some(&used(50))).unwrap();
            warnings
        });
        std::thread::sleep(POLL_INTERVAL * 2);
        assert!(!waits.is_finished(), "it did not wait for the reservation");
        one.settle(&ticket, Some(&used(20))).unwrap();
        assert_eq!(waits.join().unwrap(), 1);
    });
    assert_eq!(content(&file).spent.tokens, 70);
}

#[test]
fn reservation_of_dead_process_counts_as_spent() {
    let (_directory, file) = budget_file();
    let budget = sharing(&file, Some(1000));
    spend(&budget, 7);
    let tickets = [20, 5].map(|tokens| budget.admit(estimate(tokens), &mut |_| ()).unwrap());
    assert_eq!(reserved(&file).tokens, 25);
    // The same process id with another start time is another process.
    let text = std::fs::read_to_string(&file).unwrap();
    let started = format!("\"started\":{}", budget.owner.started);
    std::fs::write(&file, text.replace(&started, "\"started\":1")).unwrap();
    spend(&sharing(&file, None), 1);
    assert_eq!((content(&file).spent, content(&file).reserved.len()), (estimate(7 + 25 + 1), 0));
    // If the owner lives where its id cannot be seen, its requests are settled without counting them twice.
    for ticket in tickets {
        budget.settle(&ticket, Some(&used(3))).unwrap();
    }
    assert_eq!(content(&file).spent, estimate(7 + 3 + 3 + 1));
}

#[test]
fn killed_child_is_not_alive_before_parent_waits() {
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    let owner = Owner { pid: child.id(), started };
    assert!(owner.is_alive() && Owner::this().is_alive());
    child.kill().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!owner.is_alive());
    child.wait().unwrap();
    assert!(!owner.is_alive());
}

proptest! {
    // Each change of the file is synced.
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Amounts of many digits are read from a file as other numbers.
    #[test]
    fn any_amounts_leave_no_reservation(costs in prop::collection::vec((1e-9_f64..1.0, 1_u64..1000), 1..6)) {
        let (_directory, file) = budget_file();
        let budget = sharing(&file, Some(u64::MAX));
        for (usd, tokens) in costs {
            let amount = budget.average().unwrap_or(Amount { usd, tokens });
            let tickets = [amount, amount].map(|amount| budget.admit(amount, &mut |_| ()).unwrap());
            prop_assert_eq!(content(&file).reserved.len(), tickets.len(), "the control");
            for ticket in tickets {
                budget.settle(&ticket, Some(&Usage { cost_usd: Some(usd), ..used(tokens) })).unwrap();
            }
            prop_assert_eq!(content(&file).reserved, []);
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_file_is_valid_or_unchanged(cut in 0_usize..400, at in 0_usize..400, byte: u8) {
        let (_directory, file) = budget_file();
        let whole = r#"{"limit":{"usd":5.5,"tokens":1000},"spent":{"usd":0.1,"tokens":10},"reserved":[{"owner":{"pid":1,"started":2},"request":3,"amount":{"tokens":18446744073709551615,"usd":0.02}}]}"#;
        let mut text = whole.as_bytes()[..cut.min(whole.len())].to_vec();
        if let Some(there) = text.get_mut(at) {
            *there = byte;
        }
        std::fs::write(&file, &text).unwrap();
        let limit = Limit { usd: None, tokens: Some(1) };
        if let Ok(budget) = Budget::open(limit, Some(&file), None) {
            let _ = budget.unwrap().admit(estimate(u64::MAX), &mut |_| ());
            prop_assert!(BudgetFile::parse(&std::fs::read(&file).unwrap()).is_ok());
        } else {
            prop_assert_eq!(std::fs::read(&file).unwrap(), text);
        }
    }
}
