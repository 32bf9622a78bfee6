//! An answer of the embedded store is given out once it is synced, to its sender and to those that repeat the request;
//! what needs no sync does not wait for one.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::client::{Got, charge, outcomes, page, send};
use super::service::Service;
use super::shop::Shop;
use crate::disk::Disk;
use crate::program::{Keeps, Proxy, Room};
use crate::until::DEADLINE;

/// Nobody gives up while a sync is held.
const SETTINGS: &str = "store_timeout: 50s\nlease: 60s";
/// So many requests, and the store reserves at once where it can.
const WARM_UP: usize = 20;
/// Longer than a request takes that waits for nothing.
const MOMENT: Duration = Duration::from_millis(500);

/// A proxy on a disk whose syncs can be held.
struct Scene {
    shop: Shop,
    _service: Service,
    proxy: Proxy,
    disk: Disk,
    _room: Room,
}

impl Scene {
    async fn new(settings: &str) -> Scene {
        let (room, shop) = (Room::new(), Shop::new());
        let path = room.path().canonicalize().unwrap();
        let disk = Disk::of(&path, &path.join("requests"));
        let service = shop.open().await;
        let mut command = room.command_on(&Keeps::Embedded, &service.url(), settings);
        command.envs(disk.variables());
        let proxy = Proxy::start(command);
        Scene { shop, _service: service, proxy, disk, _room: room }
    }

    fn send(&self, key: &str) -> JoinHandle<Got> {
        tokio::spawn(send(self.proxy.address, charge(key, "{}")))
    }

    async fn until_ready(&self, is_ready: bool) {
        let state = async {
            while (page(self.proxy.metrics, "/readyz").await.status() == 200) != is_ready {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        assert!(timeout(DEADLINE, state).await.is_ok(), "{}", self.proxy.log());
    }

    async fn until_run(&self, key: &str) {
        let run = async {
            while self.shop.runs("/charges", key) == 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        assert!(timeout(DEADLINE, run).await.is_ok(), "{key} was not run: {}", self.proxy.log());
    }
}

async fn got(asked: JoinHandle<Got>) -> Got {
    timeout(DEADLINE, asked).await.expect("an answer in time").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_is_not_synced_is_told_to_nobody() {
    let scene = Scene::new(SETTINGS).await;
    for number in 0..WARM_UP {
        assert_eq!(got(scene.send(&format!("warm-{number}"))).await.status(), 201);
    }
    scene.disk.hold_syncs(true);
    let first = scene.send("first");
    scene.until_run("first").await;
    // While the sync of its answer is held, others are reserved, and run.
    let others: Vec<_> = (0..3).map(|number| scene.send(&format!("other-{number}"))).collect();
    for number in 0..3 {
        scene.until_run(&format!("other-{number}")).await;
    }
    // Until its answer is written it is at work; after that it is known, and must not be told.
    let waiting = loop {
        let mut again = scene.send("first");
        match timeout(MOMENT, &mut again).await {
            Err(_) => break again,
            Ok(at_work) => {
                let at_work = at_work.unwrap();
                assert_eq!(at_work.status(), 409, "nobody may be told of it yet: {at_work:?}");
            }
        }
    };
    assert!(!first.is_finished() && others.iter().all(|other| !other.is_finished()), "their answers are not synced");
    scene.disk.hold_syncs(false);
    let (first, again) = (got(first).await, got(waiting).await);
    assert_eq!((first.text(), first.is_replayed()), (r#"{"run":1}"#, false));
    assert_eq!((again.text(), again.is_replayed()), (r#"{"run":1}"#, true));
    for other in others {
        assert_eq!(got(other).await.text(), r#"{"run":1}"#);
    }
    assert_eq!(scene.shop.all(), (WARM_UP + 4, WARM_UP + 4));
}

/// Where nothing may run twice, the reservation itself is synced before the service is run.
#[tokio::test(flavor = "multi_thread")]
async fn reservation_that_is_not_to_be_taken_over_waits_for_its_sync() {
    let scene = Scene::new(&format!("{SETTINGS}\non_in_doubt: refuse")).await;
    for number in 0..WARM_UP {
        assert_eq!(got(scene.send(&format!("warm-{number}"))).await.status(), 201);
    }
    scene.disk.hold_syncs(true);
    let first = scene.send("first");
    tokio::time::sleep(MOMENT).await;
    assert_eq!((scene.shop.runs("/charges", "first"), first.is_finished()), (0, false));
    scene.disk.hold_syncs(false);
    assert_eq!(got(first).await.text(), r#"{"run":1}"#);
}

/// A disk that hangs shows in the readiness, and after a while nothing is begun any more: nobody would remember it.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_begun_while_a_sync_hangs() {
    let scene = Scene::new("store_timeout: 1s\nlease: 60s").await;
    for number in 0..WARM_UP {
        assert_eq!(got(scene.send(&format!("warm-{number}"))).await.status(), 201);
    }
    scene.disk.hold_syncs(true);
    assert_eq!(got(scene.send("first")).await.status(), 201, "it is true");
    scene.until_ready(false).await;
    let refused = async {
        for number in 0.. {
            let key = format!("late-{number}");
            match got(scene.send(&key)).await.status() {
                503 => return scene.shop.runs("/charges", &key),
                status => assert_eq!(status, 201, "the sync has hung for a moment only"),
            }
        }
        unreachable!("keys do not end")
    };
    assert_eq!(timeout(DEADLINE, refused).await.expect("a refusal in time"), 0);
    scene.disk.hold_syncs(false);
    scene.until_ready(true).await;
    assert_eq!(got(scene.send("after")).await.status(), 201);
}

/// What a sync that failed was for is not known to be on the disk: the client hears what was done, and nobody else does.
#[tokio::test(flavor = "multi_thread")]
async fn answer_whose_sync_fails_is_not_told_again() {
    let scene = Scene::new("store_timeout: 1s\nlease: 2s").await;
    assert_eq!(got(scene.send("before")).await.status(), 201);
    scene.disk.fail_syncs(true);
    let mut first = scene.send("first");
    scene.until_run("first").await;
    loop {
        if let Ok(first) = timeout(Duration::from_millis(20), &mut first).await {
            assert_eq!(first.unwrap().text(), r#"{"run":1}"#, "it is true");
            break;
        }
        let again = got(scene.send("first")).await;
        assert!([409, 503].contains(&again.status()), "nobody may be told of it: {again:?}");
    }
    let not_remembered = outcomes(scene.proxy.metrics, "not_remembered").await;
    assert_eq!(not_remembered, 1.0, "{}", scene.proxy.log());
    scene.disk.fail_syncs(false);
    // The store is opened again. It was remembered after all, or it is in doubt, and is carried out again when its lease is
    // over.
    let again = async {
        loop {
            let again = got(scene.send("first")).await;
            if again.status() == 201 {
                return again;
            }
            assert!([409, 503].contains(&again.status()), "{again:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let again = timeout(DEADLINE, again).await.expect("an answer in time");
    let expected = if again.is_replayed() { r#"{"run":1}"# } else { r#"{"run":2}"# };
    assert_eq!(again.text(), expected);
    assert!(got(scene.send("before")).await.is_replayed());
}

/// A disk that has no room for what was written: it is told to nobody, by the next process neither, until it is on the disk.
/// What was on it before is told.
#[tokio::test(flavor = "multi_thread")]
async fn answer_whose_sync_has_no_room_is_told_once_it_is_on_the_disk() {
    let Scene { shop, _service: service, mut proxy, disk, _room: room } =
        Scene::new("store_timeout: 1s\nlease: 2s").await;
    assert_eq!(send(proxy.address, charge("before", "{}")).await.status(), 201);
    disk.refuse_syncs();
    let first = send(proxy.address, charge("first", "{}")).await;
    assert_eq!((first.status(), first.text()), (201, r#"{"run":1}"#), "it is true: {}", proxy.log());
    assert_eq!(outcomes(proxy.metrics, "not_remembered").await, 1.0, "{}", proxy.log());
    let until = tokio::time::Instant::now() + Duration::from_secs(4);
    while tokio::time::Instant::now() < until {
        let again = send(proxy.address, charge("first", "{}")).await;
        assert_eq!(
            (again.status(), again.problem().as_str()),
            (503, "urn:ratchet:idempotency:store-full"),
            "{again:?}"
        );
        let before = send(proxy.address, charge("before", "{}")).await;
        assert!(before.is_replayed() && before.text() == r#"{"run":1}"#, "{before:?}");
        assert_eq!(page(proxy.metrics, "/readyz").await.status(), 200);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // The next process finds it in the log, and cannot write that elsewhere.
    proxy.signal(libc::SIGKILL);
    assert!(proxy.ended(DEADLINE).is_some());
    let start = || {
        let mut command = room.command("proxy --config proxy.yaml");
        command.envs(disk.variables());
        command
    };
    let ended = start().output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.code() == Some(1) && said.contains("No space left on device"), "{said}");
    disk.fail_syncs(false);
    let proxy = Proxy::start(start());
    let (first, before) =
        tokio::join!(send(proxy.address, charge("first", "{}")), send(proxy.address, charge("before", "{}")));
    assert!(first.is_replayed() && before.is_replayed(), "{first:?} {before:?}");
    assert_eq!(shop.all(), (2, 2));
    drop(service);
}
