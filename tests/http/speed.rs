//! How fast a lane calls, beside what the provider's latency allows: `--ignored --nocapture` prints it.

use std::time::{Duration, Instant};

use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, rendered, settings};
use crate::provider::{Move, Provider};

/// The time that the threads of lanes have used, in seconds.
fn used() -> f64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |entry: std::io::Result<std::fs::DirEntry>| {
        let folder = entry.unwrap().path();
        let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
        let times = std::fs::read_to_string(folder.join("schedstat")).unwrap_or_default();
        let nanoseconds: f64 = times.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or_default();
        if name.starts_with("calls-") { nanoseconds / 1e9 } else { 0.0 }
    };
    threads.map(of).sum()
}

#[test]
#[ignore = "prints figures"]
fn figures() {
    for (two, latency) in [(false, 0), (false, 1), (false, 20), (true, 1), (true, 20)] {
        let provider = if two { Provider::by_two() } else { Provider::start() };
        provider.always(Move::answer(201).late(Duration::from_millis(latency)));
        let authorities = two.then(|| provider.authority());
        let mut caller = Caller::new(Settings { authorities, ..settings() });
        let (mut number, mut count) = (0, 0_u32);
        let mut submit = |caller: &mut Caller| {
            number += 1;
            caller.submit(rendered(&provider.url("/charges"), &number.to_string()));
        };
        (0..128).for_each(|_| submit(&mut caller));
        let (began, before) = (Instant::now(), used());
        while began.elapsed() < Duration::from_secs(4) {
            while caller.calls.take_end().is_some() {
                count += 1;
                submit(&mut caller);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let (took, used) = (began.elapsed().as_secs_f64(), used() - before);
        let (rate, each) = (f64::from(count) / took, used * 1e6 / f64::from(count));
        println!("HTTP/{}, {latency} ms: {rate:.0}/s, {each:.1} us of CPU a request", if two { "2" } else { "1.1" });
        assert!(count > 1_000, "{count}");
    }
}
