//! Spans of time and steps of usage, in a bounded number: neighbours are joined if there are too many.

use cp_ledger::usage::UsageTotals;
use serde::Serialize;

/// The lanes that spans are drawn in.
pub(crate) const LANES: [&str; 4] = ["model", "tools", "commands", "people"];

/// The most spans that are kept of a lane.
const MOST: usize = 400;

/// A ledger, from 0, and a line in it.
pub(crate) type Place = (usize, u64);

/// Something that took time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Span {
    /// 0 the model, 1 tools, 2 commands, 3 people.
    pub(crate) lane: usize,
    /// 0 fine, 1 failed, 2 refused, 3 only waiting.
    pub(crate) tone: u8,
    /// Milliseconds since 1970.
    pub(crate) start: i64,
    /// The same, of its end.
    pub(crate) end: i64,
    /// The line that ends it.
    pub(crate) place: Place,
    /// How many it stands for.
    pub(crate) count: u64,
}

/// Keeps a lane at its most: neighbours of the same tone become one.
pub(crate) fn thin(spans: &mut Vec<Span>) {
    while spans.len() > MOST {
        let mut kept: Vec<Span> = Vec::with_capacity(spans.len() / 2 + 1);
        let mut is_joined = false;
        for span in spans.drain(..) {
            match kept.last_mut() {
                Some(last) if !is_joined => {
                    last.end = last.end.max(span.end);
                    last.count += span.count;
                    // A failure stays visible among spans that succeeded.
                    if last.tone == 0 {
                        (last.tone, last.place) = (span.tone, span.place);
                    }
                    is_joined = true;
                }
                _ => {
                    kept.push(span);
                    is_joined = false;
                }
            }
        }
        *spans = kept;
    }
}

/// The usage of a turn, or of an answer if there are no turns. Neighbours are joined if there are too many.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Step {
    /// The line that it begins with.
    pub(crate) place: Place,
    /// The number that its first turn has in its run; none of an answer.
    pub(crate) turn: Option<u64>,
    /// How many it stands for.
    pub(crate) count: u64,
    #[serde(flatten)]
    pub(crate) usage: UsageTotals,
}

impl Step {
    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.usage.add(&other.usage);
    }
}

/// Adds to the steps, of which there are at most so many: then neighbours become one.
pub(crate) fn push(steps: &mut Vec<Step>, new: Step) {
    let width = steps.first().map_or(1, |step| step.count);
    if let Some(last) = steps.last_mut().filter(|last| last.count < width) {
        return last.add(&new);
    }
    if steps.len() == MOST / 2 {
        let both = |two: &[Step]| two[1..].iter().fold(two[0].clone(), |mut sum, other| (sum.add(other), sum).1);
        *steps = steps.chunks(2).map(both).collect();
    }
    steps.push(new);
}

/// Adds what was used to the last step.
pub(crate) fn spend(steps: &mut [Step], used: &Step) {
    if let Some(last) = steps.last_mut() {
        last.add(&Step { count: 0, ..used.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(input_tokens: u64, output_tokens: u64) -> UsageTotals {
        UsageTotals { input_tokens, output_tokens, cost_usd: None }
    }

    #[test]
    fn thinning_keeps_counts_and_sums() {
        let mut steps = Vec::new();
        let mut spans = Vec::new();
        for at in 0_i64..10_000 {
            let place = (0, at.unsigned_abs());
            push(&mut steps, Step { place, count: 1, usage: used(1, 0), ..Step::default() });
            spend(&mut steps, &Step { usage: used(0, 2), ..Step::default() });
            let tone = u8::from(at == 4321);
            spans.push(Span { lane: 0, tone, start: at, end: at + 1, place, count: 1 });
            if spans.len() > 2 * MOST {
                thin(&mut spans);
            }
        }
        thin(&mut spans);
        assert!(spans.len() <= MOST && steps.len() <= MOST / 2, "{} {}", spans.len(), steps.len());
        assert_eq!(spans.iter().map(|span| span.count).sum::<u64>(), 10_000);
        assert!(spans.iter().any(|span| span.tone == 1 && span.place.1 == 4321));
        let sums = steps.iter().fold([0; 3], |sum: [u64; 3], step| {
            [sum[0] + step.count, sum[1] + step.usage.input_tokens, sum[2] + step.usage.output_tokens]
        });
        assert_eq!(sums, [10_000, 10_000, 20_000]);
        assert!(steps.windows(2).all(|two| two[0].place.1 + two[0].count == two[1].place.1), "{steps:?}");
    }
}
