//! Values in order, two of them on each other.

use std::fmt::Write as _;

const WIDTH: u64 = 1000;
const HEIGHT: u64 = 120;

/// The picture; none where all values are zero.
pub(crate) fn bars(label: &str, values: &[[u64; 2]]) -> Option<String> {
    let most = values.iter().map(|two| two[0].saturating_add(two[1])).max().filter(|most| *most > 0)?;
    let step = (WIDTH / values.len() as u64).clamp(2, 60);
    let width = (step * values.len() as u64).max(1);
    let tall = |value: u64| u64::try_from(u128::from(value) * u128::from(HEIGHT) / u128::from(most)).unwrap_or(HEIGHT);
    let mut svg = format!(
        "<svg class=\"bars\" viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{label}\">",
        WIDTH.max(width),
        HEIGHT + 2
    );
    for (at, two) in values.iter().enumerate() {
        let left = at as u64 * step;
        let (low, high) = (tall(two[0]), tall(two[1]));
        let gap = u64::from(step > 3);
        for (class, y, height) in [("first", HEIGHT - low, low), ("second", HEIGHT.saturating_sub(low + high), high)] {
            let _ = write!(
                svg,
                "<rect class=\"{class}\" x=\"{left}\" y=\"{y}\" width=\"{}\" height=\"{}\"/>",
                step - gap,
                height.max(u64::from(two[0] + two[1] > 0))
            );
        }
    }
    svg.push_str("</svg>");
    Some(svg)
}
