//! A function that keeps its thread.

use super::*;

#[test]
fn function_that_blocks_its_thread_is_seen_from_outside_though_no_timeout_ends_it() {
    let (release, blocked) = crossbeam_channel::bounded::<()>(0);
    let settings = Settings { timeout: SECOND / 20, ..keyed() };
    let mut engine = Engine::of(settings, async move |_: &Record, _: &mut Steps| {
        // No `await`: nothing else has the thread until it is released.
        let _ = blocked.recv_timeout(PATIENCE);
        Ok(Reply::none())
    });
    assert_eq!(engine.calls.blocked(), None);
    engine.submit();
    let since = Instant::now();
    let held = loop {
        match engine.calls.blocked() {
            Some((number, held)) if held > SECOND / 5 => break (number, held),
            _ if since.elapsed() > PATIENCE => panic!("nobody sees it"),
            _ => std::thread::sleep(SECOND / 100),
        }
    };
    assert_eq!(held.0, 1);
    assert!(engine.calls.take().is_none(), "its timeout has passed, and nobody has looked at it");
    release.send(()).expect("it waits for that");
    assert!(matches!(engine.next(), Next::Over(..)));
    assert_eq!(engine.calls.blocked(), None);
}

/// It gives its thread back.
#[test]
fn function_that_waits_is_not_taken_for_one_that_blocks() {
    let (begins, begun) = crossbeam_channel::bounded(1);
    let mut engine = Engine::of(keyed(), async move |_: &Record, _: &mut Steps| {
        let _ = begins.send(());
        tokio::time::sleep(SECOND * 2).await;
        Ok(Reply::none())
    });
    engine.submit();
    begun.recv_timeout(PATIENCE).expect("it begins");
    while engine.calls.blocked().is_some() {
        std::thread::sleep(SECOND / 100);
    }
    assert!(engine.calls.take().is_none(), "it is still at it");
    assert!(matches!(engine.next(), Next::Over(..)));
}
