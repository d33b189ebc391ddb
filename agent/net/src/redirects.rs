//! Where a server may send us on to.

use kops_agent_spec::urls::shown_url;
use reqwest::redirect::{Attempt, Policy};

/// A chain that is longer leads nowhere; curl's own default is 50, browsers stop at 20.
const MOST: usize = 10;

/// What an HTTP client of the agent follows: a few steps, in no circle, and never from https to http, which would
/// show the request to every hop on the way, and let any of them answer.
pub fn redirects() -> Policy {
    Policy::custom(|attempt: Attempt<'_>| {
        let to = attempt.url();
        let shown = |url: &reqwest::Url| shown_url(url.as_str());
        let from = attempt.previous().last();
        let refusal = if from.is_some_and(|from| from.scheme() == "https") && to.scheme() != "https" {
            format!("it redirects from https to {}, which is not followed; mend the mirror", shown(to))
        } else if attempt.previous().contains(to) {
            format!("it redirects in a circle, by {}", shown(to))
        } else if attempt.previous().len() > MOST {
            format!("it redirects more than {MOST} times, at last to {}", shown(to))
        } else {
            return attempt.follow();
        };
        attempt.error(refusal)
    })
}
