//! A watch of Nodes: a list in pages, and then all changes, forever.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt as _};
use kops_agent_spec::failure::{Failure, Kind};
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use tokio::time::{Instant, sleep_until};

use crate::node_api::NodeObject;

/// Timeout of one page of the list of Nodes. Without a timeout, a connection to a vanished server would block the
/// watch forever.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// A watch of Nodes that restarts after a failure.
pub struct NodeWatch {
    api: Api<NodeObject>,
    selected: watcher::Config,
    events: BoxStream<'static, watcher::Result<Event<NodeObject>>>,
    /// When the next page of the list was requested. `None` after the list is complete.
    listing: Option<Instant>,
    list_timeout: Duration,
}

impl NodeWatch {
    /// Watches all Nodes. `list_timeout` is the timeout of one page of their list. Outside of tests, it is
    /// [`LIST_TIMEOUT`].
    pub fn new(api: Api<NodeObject>, list_timeout: Duration) -> NodeWatch {
        NodeWatch::selected(api, list_timeout, watcher::Config::default())
    }

    /// Watches only the Node with this name. kubelet's credentials allow no other Node.
    pub fn of_node(api: Api<NodeObject>, list_timeout: Duration, name: &str) -> NodeWatch {
        let selected = watcher::Config::default().fields(&format!("metadata.name={name}"));
        NodeWatch::selected(api, list_timeout, selected)
    }

    fn selected(api: Api<NodeObject>, list_timeout: Duration, selected: watcher::Config) -> NodeWatch {
        NodeWatch { events: events(&api, &selected), api, selected, listing: None, list_timeout }
    }

    /// Returns the next event. An error is only information, because the watch retries by itself. Never returns
    /// `None`. Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<Result<Event<NodeObject>, Failure>> {
        let failed = |problem: String| Failure::new(Kind::ApiServerUnanswered, problem);
        let timeout = self.listing.map(|since| since + self.list_timeout);
        tokio::select! {
            event = self.events.next() => {
                let event = event?;
                let is_listing = matches!(event, Ok(Event::Init | Event::InitApply(_)));
                self.listing = is_listing.then(Instant::now);
                Some(event.map_err(|error| failed(format!("watching Nodes: {error}"))))
            }
            () = sleep_until(timeout.unwrap_or_else(Instant::now)), if timeout.is_some() => {
                self.listing = None;
                self.events = events(&self.api, &self.selected);
                Some(Err(failed(format!("listing Nodes: {}", no_answer(self.list_timeout)))))
            }
        }
    }
}

fn events(
    api: &Api<NodeObject>,
    selected: &watcher::Config,
) -> BoxStream<'static, watcher::Result<Event<NodeObject>>> {
    watcher(api.clone(), selected.clone()).default_backoff().boxed()
}

/// The result of the function `part` for each watched Node, by the Node's name.
pub struct Watched<T> {
    pub nodes: BTreeMap<String, T>,
    /// The Nodes of the pages that have arrived, while the list is not complete yet.
    listed: BTreeMap<String, T>,
    /// Whether a list of all Nodes was complete at least once.
    pub is_complete: bool,
    part: fn(NodeObject) -> T,
}

impl<T: PartialEq> Watched<T> {
    pub fn new(part: fn(NodeObject) -> T) -> Watched<T> {
        Watched { nodes: BTreeMap::new(), listed: BTreeMap::new(), is_complete: false, part }
    }

    /// Applies a watch event. Returns whether a part may have changed.
    pub fn apply(&mut self, event: Event<NodeObject>) -> bool {
        match event {
            Event::Init => self.listed.clear(),
            Event::InitApply(node) => drop(put(&mut self.listed, node, self.part)),
            Event::InitDone => {
                self.nodes = std::mem::take(&mut self.listed);
                self.is_complete = true;
                return true;
            }
            Event::Apply(node) => return put(&mut self.nodes, node, self.part),
            Event::Delete(node) => {
                return self.nodes.remove(&node.metadata.name.unwrap_or_default()).is_some();
            }
        }
        false
    }
}

/// Stores the part of a Node. Returns whether the part has changed.
fn put<T: PartialEq>(nodes: &mut BTreeMap<String, T>, node: NodeObject, part: fn(NodeObject) -> T) -> bool {
    let name = node.metadata.name.clone().unwrap_or_default();
    let part = part(node);
    let is_changed = nodes.get(&name) != Some(&part);
    nodes.insert(name, part);
    is_changed
}

/// The problem text if a page of the list exceeds its timeout.
pub fn no_answer(timeout: Duration) -> String {
    format!("the API server does not answer within {timeout:.0?}")
}
