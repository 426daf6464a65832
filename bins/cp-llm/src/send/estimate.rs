//! The sum of `--dry-run`: rows, tokens and cost before anything is paid.

use cp_common::Context;
use serde_json::json;

use crate::engine::Estimate;

/// The estimate of all requests so far and another one.
pub(super) fn sum(so_far: Option<Estimate>, more: Estimate) -> Estimate {
    let Some(sum) = so_far else { return more };
    let usd = |sum: Option<f64>, more: Option<f64>| sum.zip(more).map(|(sum, more)| sum + more);
    Estimate {
        requests: sum.requests + more.requests,
        input_tokens: sum.input_tokens + more.input_tokens,
        output_tokens: sum.output_tokens.zip(more.output_tokens).map(|(sum, more)| sum + more),
        input_usd: usd(sum.input_usd, more.input_usd),
        most_usd: usd(sum.most_usd, more.most_usd),
    }
}

/// Adds the estimate to the closing line, and prints it on standard error.
pub(super) fn report(estimate: &Estimate, context: &mut Context) {
    let Estimate { requests, input_tokens, output_tokens, input_usd, most_usd } = *estimate;
    let [input_usd, most_usd] = [input_usd, most_usd].map(|usd| usd.map(|usd| (usd * 1e9).round() / 1e9));
    let cost = |usd: Option<f64>| usd.map_or_else(|| "unknown cost".to_owned(), |usd| format!("${usd}"));
    let noun = if requests == 1 { "request" } else { "requests" };
    let answers = match output_tokens {
        Some(most) => format!("answers of at most {most} tokens make it {}", cost(most_usd)),
        None => "--max-tokens limits the answers".to_owned(),
    };
    let input = format!("{requests} {noun} of about {input_tokens} tokens, {}", cost(input_usd));
    context.warn(&format!("nothing was sent: {input}; {answers}"));
    let sum = json!({
        "requests": requests, "input_tokens": input_tokens, "max_output_tokens": output_tokens,
        "input_usd": input_usd, "max_usd": most_usd,
    });
    context.out.extra("estimate", sum);
}
