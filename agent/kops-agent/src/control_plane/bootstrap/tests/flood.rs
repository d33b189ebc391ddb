//! Ten thousand lies at once, while a hundred honest machines bootstrap.

use futures_util::future::join_all;
use tokio::sync::Semaphore;

use super::*;

const LIES: usize = 10_000;
const LIARS: u8 = 4;
const HONEST: u8 = 100;
/// How long an honest machine goes on trying; upstream's does so for longer.
const PATIENCE: Duration = Duration::from_secs(300);

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stdout)]
#[ignore = "it takes both cores for a minute; `tests/run controller --flood` runs it"]
async fn a_flood_of_10_000_lies() {
    let world = Arc::new(World::new().await);
    let honest: Vec<Principal> =
        (0..HONEST).map(|number| world.machine(&format!("i-{number:017x}"))).collect();
    let began = Instant::now();
    let flood = tokio::spawn(flood(world.clone()));
    let all = honest.iter().zip(1u8..).map(|(machine, number)| bootstrap(&world, machine, number));
    let tries: Vec<usize> = join_all(all).await;
    let (took, most) = (began.elapsed(), tries.iter().max().copied().unwrap_or_default());
    let refused = flood.await.unwrap();
    println!(
        "{HONEST} honest machines: all in {took:?}, at most {most} tries; {refused} of {LIES} lies got an answer"
    );
    assert!(refused > 0, "the flood has come through to where it is refused");
    assert!(world.counted("RefusedBySts") && world.counted("MalformedToken"));
}

/// Bootstraps as a node does: again and again, each time with a new token. How often it took.
async fn bootstrap(world: &World, machine: &Principal, number: u8) -> usize {
    let client = world.client(Ipv4Addr::new(127, 0, 1, number));
    let key = KeyPair::generate().unwrap();
    let trying = async {
        for tries in 1.. {
            let body = for_certificates(&["kubelet", "kubelet-server"], &key);
            let request = client.post(world.url()).header("Authorization", world.v1(machine, &body));
            if let Ok(answer) = request.body(body).send().await
                && answer.status().as_u16() == 200
            {
                return tries;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        unreachable!("it goes on for ever");
    };
    timeout(PATIENCE, trying).await.expect("an honest machine is let in")
}

/// Lies of every kind from a few addresses, all at once. How many were refused: others were not even listened to.
async fn flood(world: Arc<World>) -> usize {
    // A process has only so many file descriptors.
    let sockets = Arc::new(Semaphore::new(600));
    let forged = Principal { secret: "guessed".into(), ..Principal::instance(ROLE, "i-0123456789abcdef0") };
    world.sts.put(&Principal::instance(ROLE, "i-0123456789abcdef0"));
    let clients: Vec<Client> =
        (0..LIARS).map(|number| world.client(Ipv4Addr::new(127, 0, 2, number + 1))).collect();
    let lies = (0..LIES).map(|number| {
        let body = request(json!({}), json!({}), number % 2 == 0);
        let token = match number % 3 {
            0 => "x-aws-sts e30".to_owned(),
            1 => forged.token_v1(
                &world.sts.host(),
                REGION,
                &body,
                seconds(SystemTime::now()) - (number % 800) as i64,
            ),
            _ => format!("x-aws-sts-v2 {}", "A".repeat(8 * 1024)),
        };
        let request =
            clients[number % clients.len()].post(world.url()).header("Authorization", token).body(body);
        let sockets = sockets.clone();
        async move {
            let _socket = sockets.acquire().await;
            request.send().await.is_ok_and(|answer| {
                assert_ne!(answer.status().as_u16(), 200);
                true
            })
        }
    });
    let spawned: Vec<_> = lies.map(tokio::spawn).collect();
    join_all(spawned).await.into_iter().filter(|refused| *refused.as_ref().unwrap()).count()
}
