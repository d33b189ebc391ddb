//! The queue and the outage, without any I/O.

#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::queue_entry::{LONGEST_PAUSE, WRITES_AT_ONCE, WRITES_FORGOTTEN};
use super::*;

const NAME: &str = "i-00000000000000001";

/// A queue of these Nodes, all of them due.
fn seen(names: &[&str], now: Instant) -> NodeQueue {
    let mut known = NodeQueue::default();
    for name in names {
        known.see(Arc::new(ObservedNode { name: (*name).to_owned(), ..ObservedNode::default() }), now);
    }
    known
}

fn take(known: &mut NodeQueue, now: Instant) -> Vec<String> {
    known.take(now, usize::MAX)
}

#[test]
fn nodes_that_are_due_for_longest_come_first() {
    let now = Instant::now();
    let mut known = seen(&["c", "d"], now);
    for name in ["a", "b"] {
        let node = ObservedNode { name: name.to_owned(), ..ObservedNode::default() };
        known.see(Arc::new(node), now + CONFLICT_PAUSE);
    }
    let now = now + CONFLICT_PAUSE;
    assert_eq!(known.take(now, 3), ["a", "c", "d"]);
    assert_eq!(known.take(now, 0), [""; 0]);
    assert_eq!(known.take(now, 3), ["b"]);
}

#[test]
fn a_node_is_taken_once_at_a_time_and_no_change_is_missed() {
    let now = Instant::now();
    let mut known = seen(&["a"], now);
    known.changed("a", now);
    assert_eq!(take(&mut known, now), ["a"]);
    known.changed("a", now);
    assert_eq!(take(&mut known, now), [""; 0]);
    assert_eq!(known.next_due(), None, "nothing to wake up for");
    assert_eq!(known.depth(now), 1);
    known.done("a");
    assert_eq!(take(&mut known, now), ["a"]);
    known.done("a");
    assert!(known.is_idle());
}

#[test]
fn failures_come_back_later_and_later() {
    let mut now = Instant::now();
    let mut known = seen(&["a"], now);
    let mut pauses = Vec::new();
    for _ in 0..14 {
        assert_eq!(take(&mut known, now), ["a"]);
        let pause = known.failed("a", now);
        assert_eq!(known.next_due(), Some(now + pause));
        assert_eq!(take(&mut known, now), [""; 0]);
        now += pause;
        pauses.push(pause);
    }
    assert!(pauses[0] <= Duration::from_secs(1) && pauses[0] >= Duration::from_millis(700));
    assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]));
    assert_eq!(pauses[12], pauses[13]);
    assert!(pauses[13] <= LONGEST_PAUSE);
    assert!(known.is_idle());
    assert_eq!(take(&mut known, now), ["a"]);
    known.done("a");
    assert!(known.next_due().is_none() && known.nodes["a"].queue_entry == QueueEntry::default());
}

#[test]
fn an_hour_without_the_cloud_costs_few_tries_and_is_over_a_minute_later() {
    const NODES: usize = 5000;
    let begun = Instant::now();
    let names: Vec<String> = (0..NODES).map(|number| format!("i-{number:017x}")).collect();
    let mut known = seen(&names.iter().map(String::as_str).collect::<Vec<_>>(), begun);
    let (mut now, mut looks, back) = (begun, 0, begun + Duration::from_secs(60 * 60));
    while now < back {
        for name in take(&mut known, now) {
            known.unanswered(&name, now);
            known.changed(&name, now);
            looks += 1;
        }
        now = known.next_due().expect("the cloud is asked again");
    }
    // The cloud is first asked once for each Node. The probes follow after 1, 2, 4, … seconds, and later once a minute.
    assert_eq!(looks - NODES, 64);
    let (mut dealt_with, mut rounds) = (0, 0);
    while let Some(due) = known.next_due() {
        now = due;
        rounds += 1;
        for name in take(&mut known, now) {
            known.done(&name);
            known.cloud_answered(&name, now);
            dealt_with += 1;
        }
    }
    assert_eq!((dealt_with, rounds), (NODES, 2), "one, and then all together");
    assert!(now - back <= Duration::from_secs(60), "the last one waits for {:?}", now - back);
}

#[test]
fn a_failed_node_waits_for_its_backoff_however_often_it_changes() {
    let now = Instant::now();
    let mut known = seen(&["a"], now);
    take(&mut known, now);
    known.changed("a", now);
    let pause = known.failed("a", now);
    known.changed("a", now);
    assert_eq!(take(&mut known, now), [""; 0]);
    assert_eq!((known.next_due(), known.depth(now)), (Some(now + pause), 0));
    assert_eq!(take(&mut known, now + pause), ["a"]);
    known.changed("a", now + pause);
    known.done("a");
    assert_eq!(take(&mut known, now + pause), ["a"], "it changed while it was looked at");
}

#[test]
fn a_node_that_is_woken_does_not_wait_for_the_end_of_a_pause() {
    let now = Instant::now();
    let mut known = seen(&["a"], now);
    take(&mut known, now);
    let first = known.failed("a", now);
    known.wake("a", now);
    assert_eq!(take(&mut known, now), ["a"]);
    assert!(known.failed("a", now) > first, "its failures are not forgotten");
    known.wake("a", now);
    take(&mut known, now);
    known.wake("a", now);
    assert_eq!(known.failed("a", now), Duration::ZERO);
    assert_eq!(take(&mut known, now), ["a"], "what it failed for may have been over already");
    known.forget("a");
    known.done("a");
    assert_eq!(known.next_due(), None);
}

#[test]
fn a_write_that_is_undone_is_repeated_with_growing_pauses() {
    let begun = Instant::now();
    let mut known = seen(&["a"], begun);
    let (mut now, mut writes) = (begun, 0);
    while now < begun + Duration::from_secs(60 * 60) {
        assert_eq!(take(&mut known, now), ["a"]);
        let pause = known.written("a", now);
        writes += 1;
        assert_eq!(pause.is_some(), writes > WRITES_AT_ONCE);
        known.done("a");
        // Another controller undoes the write. The change and a wake do not shorten the backoff that follows writes.
        known.changed("a", now);
        known.wake("a", now);
        now = known.next_due().expect("it is due");
    }
    assert!((10..=20).contains(&writes), "{writes} writes in an hour");

    // After a long time without writes, a write has no backoff.
    now += WRITES_FORGOTTEN + Duration::from_secs(1);
    take(&mut known, now);
    assert_eq!(known.written("a", now), None);
}

#[test]
fn nothing_is_kept_of_a_node_that_is_gone() {
    let now = Instant::now();
    let mut known = seen(&["a", "b"], now);
    take(&mut known, now);
    known.forget("a");
    assert!(known.get("a").is_none());
    known.see(Arc::new(ObservedNode { name: "a".into(), ..ObservedNode::default() }), now);
    assert_eq!(take(&mut known, now), [""; 0], "it is still looked at");
    known.forget("a");
    known.written("a", now);
    known.failed("a", now);
    known.conflicted(&ObservedNode { name: "a".into(), ..ObservedNode::default() }, now);
    known.gone("a", now);
    known.done("b");
    known.forget("b");
    assert!(known.nodes.is_empty() && known.schedule.is_empty());
}

#[test]
fn a_new_list_forgets_the_nodes_that_are_not_in_it() {
    let now = Instant::now();
    let mut known = seen(&["a", "b"], now);
    known.begin(CLOUD_PAUSES);
    assert_eq!((take(&mut known, now), known.next_due()), (vec![], None), "each is seen anew");
    known.apply(Event::Init, now);
    let listed = json!({"metadata": {"name": "b"}, "spec": {}});
    known.apply(Event::InitApply(serde_json::from_value(listed).unwrap()), now);
    assert!(known.get("b").is_none() && !known.is_complete());
    known.apply(Event::InitDone, now);
    assert!(known.is_complete() && known.nodes.len() == 1);
    assert_eq!(take(&mut known, now), ["b"]);
}

#[test]
fn the_schedule_has_each_node_that_is_due_once() {
    let now = Instant::now();
    let mut known = seen(&["a", "b", "c"], now);
    take(&mut known, now);
    known.failed("a", now);
    known.wake("a", now);
    known.wake("a", now + CONFLICT_PAUSE);
    known.unanswered("b", now);
    known.changed("b", now);
    known.done("c");
    let scheduled: Vec<&str> = known.schedule.iter().map(|(_, name)| &**name).collect();
    assert_eq!(scheduled, ["a"]);
    assert_eq!((known.next_due(), known.depth(now)), (Some(now), 1));
}

#[test]
fn a_state_is_small() {
    assert!(size_of::<NodeState>() <= 240, "{} bytes for each Node", size_of::<NodeState>());
}

/// A queue of Nodes that wait for the cloud.
fn down(names: &[&str], now: Instant) -> NodeQueue {
    let mut known = seen(names, now);
    for name in take(&mut known, now) {
        known.unanswered(&name, now);
    }
    known
}

#[test]
fn one_after_the_other_asks_for_all() {
    let now = Instant::now();
    let mut known = down(&["a", "b", "c"], now);
    assert_eq!((known.outage().len(), known.outage().failures()), (3, 1), "they failed together");
    assert_eq!(take(&mut known, now), [""; 0]);
    let mut asked = Vec::new();
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let due = known.next_due().unwrap();
        let names = take(&mut known, due);
        assert_eq!(names.len(), 1);
        let waiting = known.outage().len();
        assert_eq!((take(&mut known, due).len(), known.next_due(), waiting), (0, None, 3), "one at a time");
        pauses.push(known.unanswered(&names[0], due).unwrap().as_secs());
        asked.extend(names);
    }
    assert_eq!(asked.concat(), "abcabcabc", "one that never is answered for holds up no other");
    assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60, 60]);
}

#[test]
fn an_answer_is_the_end_for_all() {
    let now = Instant::now();
    let mut known = down(&["a", "b", "c"], now);
    let due = known.next_due().unwrap();
    let name = take(&mut known, due).remove(0);
    assert_eq!(known.cloud_answered("of a Node that did not wait", due), 0);
    assert_eq!(known.cloud_answered(&name, due), 2);
    assert_eq!((known.outage().len(), known.outage().failures()), (0, 0));
    known.done(&name);
    assert_eq!(take(&mut known, due), ["b", "c"]);
    assert_eq!(known.unanswered("b", due), Some(CLOUD_PAUSES.first), "it begins anew");
}

#[test]
fn a_node_that_is_gone_or_woken_holds_up_no_other() {
    let now = Instant::now();
    let mut known = down(&["a", "b"], now);
    known.wake("b", now);
    assert_eq!((take(&mut known, now), known.outage().len()), (vec!["b".to_owned()], 1));
    let due = known.next_due().unwrap();
    assert_eq!(take(&mut known, due), ["a"]);
    assert_eq!(known.unanswered("b", due), None, "a is asked for");
    known.gone("a", due);
    assert_eq!(take(&mut known, due), ["b"]);
    known.gone("b", due);
    assert_eq!((known.outage().len(), known.next_due()), (0, None));
}

fn node(provider_id: &str, labels: &[(&str, &str)], version: &str) -> Event<NodeObject> {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    let node = json!({"metadata": {"name": NAME, "labels": labels, "resourceVersion": version},
                      "spec": {"providerID": provider_id}});
    Event::Apply(serde_json::from_value(node).unwrap())
}

#[test]
fn a_refused_node_gets_no_early_retry_by_changing_its_labels() {
    let mut known = NodeQueue::default();
    known.apply(node("aws:///a/i-1", &[], "1"), Instant::now());
    assert_eq!(take(&mut known, Instant::now()), [NAME]);
    known.failed(NAME, Instant::now());
    known.apply(node("aws:///a/i-1", &[("a", "1")], "2"), Instant::now());
    assert_eq!(take(&mut known, Instant::now()), [""; 0]);
    known.apply(node("aws:///a/i-2", &[("a", "1")], "3"), Instant::now());
    assert_eq!(take(&mut known, Instant::now()), [NAME], "it says that it is another");
    known.failed(NAME, Instant::now());
    known.wake_all(Instant::now());
    assert_eq!(take(&mut known, Instant::now()), [NAME], "its group may be there now");
}

#[test]
fn an_outdated_node_is_due_as_soon_as_its_new_version_arrives() {
    let mut known = NodeQueue::default();
    known.apply(node("aws:///a/i-1", &[], "1"), Instant::now());
    let old = known.get(NAME).unwrap().clone();
    take(&mut known, Instant::now());
    known.conflicted(&old, Instant::now());
    assert!(known.is_outdated(&old));
    known.failed(NAME, Instant::now());
    known.apply(node("aws:///a/i-1", &[], "2"), Instant::now());
    assert_eq!(take(&mut known, Instant::now() + CONFLICT_PAUSE), [NAME]);
}
