//! Lists of the API server, which come in pages.

use kube::api::{ListParams, ObjectList};

const PAGE: u32 = 500;

/// All that a list has, in pages of as many objects as are selected, or else of some hundred. `ask` gets one page; what `keep` makes of an object is all that is held of it while the next page is read.
///
/// # Errors
/// The first page that is not answered.
pub async fn all<K, T, E, F>(
    selected: ListParams,
    ask: impl Fn(ListParams) -> F,
    keep: impl Fn(K) -> T,
) -> Result<Vec<T>, E>
where
    K: Clone,
    F: Future<Output = Result<ObjectList<K>, E>>,
{
    let mut page = ListParams { limit: selected.limit.or(Some(PAGE)), ..selected };
    let mut kept = Vec::new();
    loop {
        let answered = ask(page.clone()).await?;
        kept.extend(answered.items.into_iter().map(&keep));
        match answered.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(kept),
        }
    }
}
