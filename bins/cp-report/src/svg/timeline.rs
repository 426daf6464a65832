//! What happened when: a lane each for the model, tools, commands and people.

use std::fmt::Write as _;

use crate::model::{LANES, Place, Span};

const WIDTH: i64 = 1000;
const LANE: i64 = 26;
/// Where the lanes begin, right of their names.
const LEFT: i64 = 90;

const TONES: [&str; 4] = ["fine", "failed", "refused", "waiting"];

/// The picture; none where nothing took time.
pub(crate) fn timeline(
    lanes: &[Vec<Span>; LANES.len()],
    id: impl Fn(Place) -> String,
    text: impl Fn(i64) -> String,
) -> Option<String> {
    let all = || lanes.iter().flatten();
    let start = all().map(|span| span.start).min()?;
    let whole = (all().map(|span| span.end).max()? - start).max(1);
    let x = |time: i64| LEFT + (time - start) * (WIDTH - LEFT) / whole;
    let height = LANE * 4 + 22;
    let mut svg = format!(
        "<svg class=\"timeline\" viewBox=\"0 0 {WIDTH} {height}\" role=\"group\" aria-label=\"Timeline, {} long\">",
        text(whole)
    );
    for (lane, name) in LANES.iter().enumerate() {
        let top = LANE * i64::try_from(lane).unwrap_or(0);
        let _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{name}</text><rect class=\"lane\" x=\"{LEFT}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            top + 18,
            top + 3,
            WIDTH - LEFT,
            LANE - 6,
        );
        for span in &lanes[lane] {
            let tone = TONES[usize::from(span.tone).min(3)];
            let wide = (x(span.end) - x(span.start)).max(3);
            let left = x(span.start).min(WIDTH - wide);
            let several = if span.count > 1 { format!(", {} of them", span.count) } else { String::new() };
            let said = format!("{name}, {tone}, {}{several}", text(span.end - span.start));
            let id = id(span.place);
            let _ = write!(
                svg,
                "<a id=\"t{id}\" href=\"#{id}\" aria-label=\"{said}\"><title>{said}</title><rect class=\"{tone}\" x=\"{left}\" y=\"{}\" width=\"{wide}\" height=\"{}\"/></a>",
                top + 3,
                LANE - 6,
            );
        }
    }
    for part in 0..=4 {
        let at = LEFT + (WIDTH - LEFT) * part / 4;
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
