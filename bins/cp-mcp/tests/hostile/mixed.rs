//! All of it at once, in an order that only the seed knows.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Serve, call, cancel, counts, greeting, ping, request, sleep};

struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[test]
fn each_request_gets_one_answer_or_was_cancelled_in_whatever_company_it_comes() {
    let seeds = cp_testkit::times(4, 100);
    for seed in 1..=seeds {
        let mut dice = Dice(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
        let mut serve = Serve::greeted();
        // How often each may be answered.
        let mut expected: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let mut text: Vec<u8> = Vec::new();
        let mut say = |message: &Value| text.extend(format!("{message}\n").bytes());
        for number in 0..150 {
            let id = if dice.below(2) == 0 { json!(number) } else { json!(format!("n{number}")) };
            let (message, least) = match dice.below(9) {
                0 => (ping(id.clone()), 1),
                1 => (call(id.clone(), "cp_read", json!({"path": "small"})), 1),
                2 => (call(id.clone(), "cp_run", json!({"argv": ["true"]})), 1),
                3 => (call(id.clone(), "cp_run", json!({"argv": ["rm", "small"]})), 1),
                4 => (request(id.clone(), "tools/list", json!({"cursor": "x"})), 1),
                5 => (greeting(id.clone()), 1),
                6 => (request(id.clone(), "nobody/knows", json!([])), 1),
                // These two are cancelled below.
                7 => (sleep(id.clone(), "600.07"), 0),
                _ => (call(id.clone(), "cp_check", json!({"command": "true"})), 0),
            };
            say(&message);
            expected.insert(id.to_string(), (least, 1));
            if least == 0 {
                say(&cancel(id));
            }
            if dice.below(5) == 0 {
                say(&cancel(json!("nobody")));
            }
        }
        say(&ping(json!("last")));
        expected.insert("\"last\"".to_owned(), (1, 1));
        let (writer, _) = serve.flood(text);
        let least = expected.values().map(|(least, _)| least).sum::<usize>();
        let missing = |serve: &Serve| {
            let counts = counts(&serve.answers);
            expected.iter().filter(|(id, (least, _))| counts.get(*id).copied().unwrap_or(0) < *least).count()
        };
        while serve.answers.len() < least || missing(&serve) > 0 {
            serve.next();
        }
        assert!(serve.peak_mib() <= 10.0, "seed {seed}: {} MiB", serve.peak_mib());
        drop(writer.join().unwrap());
        for (id, count) in counts(&serve.end()) {
            let (_, most) = expected.get(&id).unwrap_or_else(|| panic!("seed {seed}: nobody asked {id}"));
            assert!(count <= *most, "seed {seed}: {id} was answered {count} times");
        }
    }
    Serve::wait_until_runs("600.07", false);
}
