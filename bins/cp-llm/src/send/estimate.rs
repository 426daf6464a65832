//! The sum of `--dry-run`: rows, tokens and cost before anything is paid.

use cp_common::Context;
use serde_json::json;

use crate::engine::RequestEstimate;

/// The estimate for all requests so far.
#[derive(Default)]
pub(super) struct Estimate {
    requests: u64,
    input_tokens: u64,
    /// The most output tokens; `None` if a request has no limit.
    output_tokens: Option<u64>,
    /// The cost of the input, and of the longest answers too; `None` if a price or a limit is unknown.
    input_usd: Option<f64>,
    most_usd: Option<f64>,
}

impl Estimate {
    /// Adds a request.
    pub(super) fn add(&mut self, request: &RequestEstimate) {
        if self.requests == 0 {
            *self = Self { output_tokens: Some(0), input_usd: Some(0.0), most_usd: Some(0.0), ..Self::default() };
        }
        self.requests += 1;
        self.input_tokens += request.input_tokens;
        self.output_tokens = self.output_tokens.zip(request.output_tokens).map(|(sum, more)| sum + more);
        self.input_usd = self.input_usd.zip(request.input_usd).map(|(sum, more)| sum + more);
        self.most_usd = self.most_usd.zip(request.most_usd).map(|(sum, more)| sum + more);
    }

    /// Adds the sum to the closing line, and prints it on standard error.
    pub(super) fn report(&self, context: &mut Context) {
        let Self { requests, input_tokens, output_tokens, .. } = *self;
        let [input_usd, most_usd] = [self.input_usd, self.most_usd].map(|usd| usd.map(|usd| (usd * 1e9).round() / 1e9));
        let cost = |usd: Option<f64>| usd.map_or_else(|| "unknown cost".to_owned(), |usd| format!("${usd}"));
        let noun = if requests == 1 { "request" } else { "requests" };
        let answers = match output_tokens {
            Some(most) => format!("answers of at most {most} tokens make it {}", cost(most_usd)),
            None => "--max-tokens limits the answers".to_owned(),
        };
        context.warn(&format!(
            "nothing was sent: {requests} {noun} of about {input_tokens} tokens, {}; {answers}",
            cost(input_usd)
        ));
        context.out.extra(
            "estimate",
            json!({
                "requests": requests, "input_tokens": input_tokens, "max_output_tokens": output_tokens,
                "input_usd": input_usd, "max_usd": most_usd,
            }),
        );
    }
}
