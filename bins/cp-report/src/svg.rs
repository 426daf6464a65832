//! Pictures as the text of an SVG, which has attributes only, no style and no text from a ledger: bars, and a timeline.

use std::fmt::Write as _;

use crate::model::{LANES, Place, Span};

const BARS_WIDTH: u64 = 1000;
const HEIGHT: u64 = 120;

/// A bar.
pub(crate) struct Bar {
    pub(crate) values: [u64; 2],
    /// The label for screen readers.
    pub(crate) label_text: String,
    /// The id of the line that it is about, and before it what makes the bar's own; none where a table says the same.
    pub(crate) place: Option<(&'static str, String)>,
}

impl From<[u64; 2]> for Bar {
    fn from(values: [u64; 2]) -> Self {
        Self { values, label_text: String::new(), place: None }
    }
}

/// The picture; none where all values but one are zero, because a sentence says it better.
pub(crate) fn bars(label: &str, bars: &[Bar]) -> Option<String> {
    let sum = |bar: &Bar| bar.values[0].saturating_add(bar.values[1]);
    let most = bars.iter().map(sum).max().filter(|_| bars.iter().filter(|bar| sum(bar) > 0).count() > 1)?;
    let step = (BARS_WIDTH / bars.len() as u64).clamp(2, 60);
    let width = BARS_WIDTH.max(step * bars.len() as u64);
    let tall = |value: u64| u64::try_from(u128::from(value) * u128::from(HEIGHT) / u128::from(most)).unwrap_or(HEIGHT);
    let role = if bars.iter().any(|bar| bar.place.is_some()) { "group" } else { "img" };
    let mut svg =
        format!("<svg class=\"bars\" viewBox=\"0 0 {width} {}\" role=\"{role}\" aria-label=\"{label}\">", HEIGHT + 2);
    for (at, bar) in bars.iter().enumerate() {
        let left = at as u64 * step;
        // A value that is not zero is always visible.
        let [low, high] = bar.values.map(|value| tall(value).max(u64::from(value > 0)));
        let gap = u64::from(step > 3);
        if let Some((own, place)) = &bar.place {
            let label_text = &bar.label_text;
            let _ = write!(
                svg,
                "<a id=\"{own}{place}\" href=\"#{place}\" aria-label=\"{label_text}\"><title>{label_text}</title><rect class=\"all\" x=\"{left}\" y=\"0\" width=\"{step}\" height=\"{HEIGHT}\"/>"
            );
        }
        for (class, y, height) in [("first", HEIGHT - low, low), ("second", HEIGHT.saturating_sub(low + high), high)] {
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{left}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>",
                step - gap,
                height
            );
        }
        svg.push_str(if bar.place.is_some() { "</a>" } else { "" });
    }
    svg.push_str("</svg>");
    Some(svg)
}

const TIMELINE_WIDTH: i64 = 1000;
const LANE: i64 = 26;
/// The left edge of the lanes, right of their names.
const LEFT: i64 = 90;

const TONES: [&str; 4] = ["fine", "failed", "refused", "waiting"];

/// The picture; none where not more than one thing took time.
pub(crate) fn timeline(
    lanes: &[Vec<Span>; LANES.len()],
    id: impl Fn(Place) -> String,
    text: impl Fn(i64) -> String,
) -> Option<String> {
    let all = || lanes.iter().flatten();
    let start = all().map(|span| span.start).min().filter(|_| all().count() > 1)?;
    let whole = (all().map(|span| span.end).max()? - start).max(1);
    let x = |time: i64| LEFT + (time - start) * (TIMELINE_WIDTH - LEFT) / whole;
    let height = LANE * 4 + 22;
    let mut svg = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {TIMELINE_WIDTH} {height}\" role=\"group\" aria-label=\"Timeline, {} long\">",
        text(whole)
    );
    for (lane, name) in LANES.iter().enumerate() {
        let top = LANE * i64::try_from(lane).unwrap_or(0);
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{name}</text><rect class=\"lane\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            top + 18,
            top + 3,
            TIMELINE_WIDTH - LEFT,
            LANE - 6,
        );
        for span in &lanes[lane] {
            let tone = TONES[usize::from(span.tone).min(3)];
            let wide = (x(span.end) - x(span.start)).max(3);
            let left = x(span.start).min(TIMELINE_WIDTH - wide);
            let several = if span.count > 1 { format!(", {} of them", span.count) } else { String::new() };
            let label_text = format!("{name}, {tone}, {}{several}", text(span.end - span.start));
            let id = id(span.place);
            let _ = write!(
                svg,
                "<a id=\"t{id}\" href=\"#{id}\" aria-label=\"{label_text}\"><title>{label_text}</title><rect class=\"{name} {tone}\" x=\"{left}\" y=\"{}\" width=\"{wide}\" height=\"{}\"/></a>",
                top + 3,
                LANE - 6,
            );
        }
    }
    for part in 0..=4 {
        let at = LEFT + (TIMELINE_WIDTH - LEFT) * part / 4;
        let anchor = ["start", "middle", "middle", "middle", "end"][usize::try_from(part).unwrap_or(0)];
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{at}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            LANE * 4 + 16,
            text(whole * part / 4)
        );
    }
    svg.push_str("</svg>");
    Some(svg)
}
