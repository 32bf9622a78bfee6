//! What a seed draws: the network, the fetcher's settings, a client.

use std::sync::Arc;
use std::time::Duration;

use ratchet_testkit::random::Random;

use super::super::client::brokers::{Address, Brokers, Settings};
use super::super::client::fetcher::FetchSettings;
use super::super::links::Weather;

pub fn weather(random: &mut Random) -> Weather {
    Weather {
        delay_max: *random.pick(&[200, 5_000]),
        late_max: *random.pick(&[1_000, 500_000]),
        refuse_once_in: *random.pick(&[0, 5]),
        hold_once_in: *random.pick(&[0, 10]),
        garbles_once_in: 0,
        throttles_once_in: 0,
        piece_max: *random.pick(&[30, 1 << 20]),
    }
}

pub fn settings(random: &mut Random) -> FetchSettings {
    FetchSettings {
        max_wait: Duration::from_millis(*random.pick(&[1, 10, 100])),
        min_bytes: *random.pick(&[1, 1, 3_000]),
        max_bytes: *random.pick(&[300, 2_000, 10_000]),
        partition_max_bytes: *random.pick(&[100, 700, 3_000, 10_000]),
        buffered_bytes_max: *random.pick(&[1_000, 20_000, 1 << 20]),
        request_timeout: Duration::from_millis(300),
        unknown_epoch_wait: Duration::from_millis(*random.pick(&[0, 500])),
        ..FetchSettings::default()
    }
}

/// A client that knows nothing yet.
pub fn client(seed: u64) -> Brokers {
    let settings = Settings {
        request_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(300),
        reconnect_backoff: Duration::from_millis(5),
        reconnect_backoff_max: Duration::from_millis(100),
        ..Settings::default()
    };
    let bootstrap = (1..=3).map(|node| Address { host: format!("node{node}"), port: 9092 }).collect();
    Brokers::seeded(Arc::new(settings), bootstrap, seed)
}
