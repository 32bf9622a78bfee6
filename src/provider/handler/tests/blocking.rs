//! Goal: a function that occupies its thread is reported.

use super::*;

#[test]
fn function_that_blocks_its_thread_is_reported_although_no_timeout_ends_it() {
    let (release, blocked) = crossbeam_channel::bounded::<()>(0);
    let settings = Settings { timeout: SECOND / 20, ..keyed() };
    let mut engine = Engine::of(settings, async move |_: &Record, _: &mut Steps| {
        // No `await`: nothing else runs on the thread until the test releases it.
        let _ = blocked.recv_timeout(PATIENCE);
        Ok(Reply::none())
    });
    assert_eq!(engine.calls.blocked(), None);
    engine.submit();
    let since = Instant::now();
    let blocking = loop {
        match engine.calls.blocked() {
            Some((number, duration)) if duration > SECOND / 5 => break (number, duration),
            _ if since.elapsed() > PATIENCE => panic!("it is not reported"),
            _ => std::thread::sleep(SECOND / 100),
        }
    };
    assert_eq!(blocking.0, 1);
    assert!(engine.calls.take_end().is_none(), "its timeout has passed, but nothing could end it");
    release.send(()).expect("it waits to be released");
    assert!(matches!(engine.next(), EngineEvent::Over(..)));
    assert_eq!(engine.calls.blocked(), None);
}

/// Its `await` gives the thread back.
#[test]
fn function_that_awaits_is_not_reported_as_blocking() {
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
    assert!(engine.calls.take_end().is_none(), "it is still running");
    assert!(matches!(engine.next(), EngineEvent::Over(..)));
}
