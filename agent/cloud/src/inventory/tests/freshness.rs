//! How fresh the known machines are, and how many requests that costs.

use super::super::listing::{PAGE_TTL, STALE};
use super::*;
use crate::rate_limiter::RateLimiter;

pub(super) async fn a_machine_newer_than_a_long_list_is_found_in_time<K: Known>() {
    let ListApi { page: (_, per_page), newest_first, .. } = K::Machine::API;
    let last = 2 * per_page.parse::<u64>().unwrap() + 1;
    let api = StandIn::<K>::start().unwrap();
    for number in 1..=last {
        api.put(number, own::<K>(2));
    }
    let machines = inventory(&api, CloudCalls::default());
    assert!(machines.get(id::<K>(1)).await.unwrap().is_some());
    assert_eq!(api.calls(), 3, "the whole list");
    for number in [1, 2] {
        api.put(last + number, K::of_cluster(CLUSTER, &format!("new-{number}"), &[[10, 0, 1, 7]]));
    }
    let begun = Instant::now();
    let asked = join_all((1..1000).map(|number| machines.get(id::<K>(last + number)))).await;
    let found = asked.iter().filter(|answer| answer.as_ref().unwrap().is_some()).count();
    let newest = usize::from(!newest_first.is_empty());
    let made_up = 30 - newest - if newest_first.is_empty() { 2 } else { 0 };
    assert_eq!(found, 2);
    // A slow test run makes one more request every ten seconds, and requests the whole list again once the list is stale.
    let (least, earned) = (3 + newest + 2 * (1 - newest) + made_up, begun.elapsed().as_secs() / 10);
    let stale = if earned > 0 { 3 } else { 0 };
    let most = least + usize::try_from(earned).unwrap() + stale;
    assert!((least..=most).contains(&api.calls()), "{} of {least} to {most}", api.calls());
    let calls = api.calls();
    assert!(machines.has_address([10, 0, 1, 7].into()) && machines.has_address([10, 0, 0, 2].into()));
    // New machines are treated like listed machines: the Node of a new machine is identified, and a Node with the name of a different
    // machine is an impostor.
    let name = machines.get(id::<K>(last + 1)).await.unwrap().unwrap().node_name();
    assert_eq!(identified::<K>(machines.clone(), &name, last + 1).await.unwrap(), "nodes");
    let older = machines.get(id::<K>(2)).await.unwrap().unwrap().node_name();
    match identified::<K>(machines.clone(), &older, last + 2).await {
        Err(NotIdentified::Refused(refusal)) => assert!(refusal.is_definite(), "{refusal}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(api.calls(), calls);
    // If an API fails, a machine is not treated as absent, and known machines stay known.
    api.set_mood(Mood::Down);
    let known = machines.listing_with(id::<K>(1)).await.unwrap();
    machines.refresh(&known).await.err();
    machines.list().await.unwrap_err();
    assert!(machines.get(id::<K>(1)).await.unwrap().is_some());
}

pub(super) async fn a_machine_that_moves_between_pages_is_requested_by_id<K: Known>() {
    let last = 3 * K::Machine::API.page.1.parse::<u64>().unwrap();
    let api = StandIn::<K>::start().unwrap();
    for number in 1..=last {
        api.put(number, own::<K>(2));
    }
    let first = if K::Machine::API.newest_first.is_empty() { 1 } else { last };
    api.remove_after_a_page(first);
    let machines = inventory(&api, CloudCalls::default());
    for number in (1..=last).filter(|number| *number != first) {
        assert!(machines.get(id::<K>(number)).await.unwrap().is_some(), "{number}");
    }
    assert!(api.calls() <= 5, "{}", api.calls());
}

pub(super) async fn a_failed_page_is_retried_and_the_list_completes<K: Known>() {
    let pages = 3;
    let api = StandIn::<K>::start().unwrap();
    for number in 1..=K::Machine::API.page.1.parse::<u64>().unwrap() * (pages - 1) + 1 {
        api.put(number, own::<K>(2));
    }
    api.lose(1);
    let mut machines = K::inventory(&api, CloudCalls::default());
    machines.questions.retries = retry::FAST;
    let machines = Arc::new(machines);
    assert!(machines.get(id::<K>(1)).await.unwrap().is_some());
    assert_eq!(api.calls() as u64, pages + 1);
}

pub(super) async fn known_machines_stay_known_during_a_short_outage<K: Known>() {
    let (api, machines) = with_one::<K>();
    assert!(machines.get(id::<K>(1)).await.unwrap().is_some());
    api.set_mood(Mood::Forbidding);
    machines.list().await.unwrap_err();
    let (ttl, longest) = (PAGE_TTL, PAGE_TTL + STALE);
    for (age, is_known) in [(ttl * 2, true), (longest - Duration::from_secs(2), true), (longest * 2, false)] {
        machines.last().good.as_mut().unwrap().0 = Instant::now() - age;
        assert_eq!(machines.stale(id::<K>(1), longest).is_some(), is_known, "{age:?}");
        assert!(machines.stale(id::<K>(2), longest).is_none(), "it is no word of others");
    }
}

pub(super) async fn machines_of_the_cluster_are_found_by_id<K: Known>() {
    let api = StandIn::start().unwrap();
    let pages = 3;
    let per_page: u64 = K::Machine::API.page.1.parse().unwrap();
    let last = per_page * (pages - 1) + 1;
    for number in 1..=last {
        api.put(number, own::<K>(2));
    }
    api.put(last + 1, K::of_cluster("other.example.com", "nodes", &[[10, 0, 0, 9]]));
    api.put(last, K::of_cluster(CLUSTER, "none", &[]));
    let machines = inventory(&api, CloudCalls::default());
    let private = IpAddr::from([10, 0, 0, 2]);
    assert!(!machines.has_address(private), "none was listed yet");
    let machine = machines.get(id::<K>(last - 1)).await.unwrap().unwrap();
    assert_eq!((machine.id(), machine.called_back_at()), (id::<K>(last - 1), Some(private)));
    assert_eq!(machines.get(id::<K>(last)).await.unwrap().unwrap().called_back_at(), None);
    assert!(machines.get(id::<K>(last + 1)).await.unwrap().is_none(), "it is of another cluster");
    let newest = u64::from(!K::Machine::API.newest_first.is_empty());
    assert_eq!(
        api.calls() as u64,
        pages + newest + 1,
        "one list; and for the unknown id the newest, and itself"
    );
    assert!(
        machines.has_address(private) && K::OTHER_ADDRESS.is_none_or(|other| machines.has_address(other))
    );
}

pub(super) async fn a_thousand_made_up_ids_cost_one_list<K: Known>() {
    let (api, machines) = with_one::<K>();
    let asked = join_all((1..1000).map(|number| machines.get(id::<K>(number)))).await;
    assert_eq!(asked.iter().filter(|answer| answer.as_ref().unwrap().is_some()).count(), 1);
    assert_eq!(api.calls(), 1);
}

pub(super) async fn a_failing_api_is_asked_again_after_a_pause<K: Known>() {
    let ListApi { api: Api { name, .. }, service, action, .. } = K::Machine::API;
    let as_said = |status: u16| format!("{name} answers {action} with {status}");
    let not_as = |status: u16| format!("answers {action} with {status}, which is not an answer of {name}");
    for (mood, expected, outcome) in [
        (Mood::Throttling, format!("{name} throttles {action} ({})", K::API.throttled), Outcome::Throttled),
        (Mood::Down, format!("{} {}", as_said(503), K::API.down), Outcome::Error),
        (Mood::Forbidding, as_said(403), Outcome::Error),
        (Mood::NotFound, as_said(404), Outcome::Error),
        (Mood::Babbling, not_as(200), Outcome::Error),
        (Mood::Truncating, not_as(200), Outcome::Error),
        (Mood::Redirecting, not_as(302), Outcome::Error),
        (Mood::Endless, "its pages have no end".to_owned(), Outcome::Success),
    ] {
        let api = StandIn::<K>::start().unwrap();
        api.put(1, own(1));
        api.set_mood(mood);
        let calls = CloudCalls::default();
        let machines = inventory(&api, calls.clone());
        for _ in 0..2 {
            let error = machines.get(id::<K>(1)).await.unwrap_err().to_string();
            assert!(error.contains(&expected) && !error.contains(K::API.token), "{expected}: {error}");
        }
        assert_eq!(calls.counted(service, action, outcome), api.calls() as u64, "{mood:?}");
        assert!(api.calls() == 1 || mood == Mood::Endless, "{mood:?}");
    }
}

pub(super) async fn retry_after_is_honoured_up_to_a_maximum<K: Known>() {
    let hour = Duration::from_secs(3600);
    let a_while = Duration::from_secs(20);
    for (asked, made) in [(Duration::ZERO, PAGE_TTL), (a_while, a_while), (hour, LONGEST_PAUSE)] {
        let (api, mut machines) = with_one::<K>();
        api.set_mood(Mood::ThrottlingFor(asked));
        let before = Instant::now();
        machines.list().await.unwrap_err();
        let until = machines.last().failed.as_ref().unwrap().0;
        assert!(until >= before + made && until <= Instant::now() + made, "{asked:?}");
        api.set_mood(Mood::Good);
        // No request is made during the pause. After the pause, the next request is made.
        machines.last().failed.as_mut().unwrap().0 = Instant::now() + hour;
        machines.list().await.unwrap_err();
        assert_eq!(api.calls(), 1, "{asked:?}");
        machines.last().failed.as_mut().unwrap().0 = Instant::now();
        Arc::get_mut(&mut machines).unwrap().questions.limiter = RateLimiter::new(1.0, 1.0);
        assert_eq!(machines.list().await.unwrap().len(), 1, "{asked:?}");
    }
}
