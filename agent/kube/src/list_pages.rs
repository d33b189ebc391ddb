//! Reads lists of the API server page by page.

use kube::api::{ListParams, ObjectList};

const PAGE: u32 = 500;

/// Reads all pages of a list. `ask` requests one page. The page size is the limit in `selected`, or 500 objects if
/// `selected` has no limit. From each page, only the results of `keep` stay in memory.
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
