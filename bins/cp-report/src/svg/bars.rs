//! Values in order, two of them on each other.

use std::fmt::Write as _;

const WIDTH: u64 = 1000;
const HEIGHT: u64 = 120;

/// A bar.
pub(crate) struct Bar {
    pub(crate) values: [u64; 2],
    /// What it says to those who do not see it.
    pub(crate) said: String,
    /// The id of the line that it is about, and before it what makes the bar's own; none where a table says the same.
    pub(crate) place: Option<(&'static str, String)>,
}

impl From<[u64; 2]> for Bar {
    fn from(values: [u64; 2]) -> Self {
        Self { values, said: String::new(), place: None }
    }
}

/// The picture; none where all values are zero.
pub(crate) fn bars(label: &str, bars: &[Bar]) -> Option<String> {
    let sum = |bar: &Bar| bar.values[0].saturating_add(bar.values[1]);
    let most = bars.iter().map(sum).max().filter(|most| *most > 0)?;
    let step = (WIDTH / bars.len() as u64).clamp(2, 60);
    let width = WIDTH.max(step * bars.len() as u64);
    let tall = |value: u64| u64::try_from(u128::from(value) * u128::from(HEIGHT) / u128::from(most)).unwrap_or(HEIGHT);
    let role = if bars.iter().any(|bar| bar.place.is_some()) { "group" } else { "img" };
    let mut svg =
        format!("<svg class=\"bars\" viewBox=\"0 0 {width} {}\" role=\"{role}\" aria-label=\"{label}\">", HEIGHT + 2);
    for (at, bar) in bars.iter().enumerate() {
        let left = at as u64 * step;
        // What is there at all can be seen.
        let [low, high] = bar.values.map(|value| tall(value).max(u64::from(value > 0)));
        let gap = u64::from(step > 3);
        if let Some((own, place)) = &bar.place {
            let said = &bar.said;
            let _ = write!(
                svg,
                "<a id=\"{own}{place}\" href=\"#{place}\" aria-label=\"{said}\"><title>{said}</title><rect class=\"all\" x=\"{left}\" y=\"0\" width=\"{step}\" height=\"{HEIGHT}\"/>"
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
