//! Goal: the brokers' abilities are queried before the brokers are used, even if they start at the same time.

use std::sync::Mutex;

use super::faulty::{Faults, Faulty};
use super::*;
use crate::cluster::Abilities;

fn query(responses: [Option<Abilities>; 2]) -> Result<Option<Abilities>, cluster::Error> {
    let faults = Faults { abilities: Mutex::new(responses.into()), ..Faults::default() };
    let site = Site::new();
    reach::query(&Faulty { inner: site.cluster.clone(), faults: Arc::new(faults) })
}

/// Brokers and ratchet are started together: the brokers do not respond before they are up.
#[test]
fn brokers_that_start_meanwhile_are_queried_again() {
    let whole = Abilities { asked: 1, ..Abilities::default() };
    let lacking = Abilities { lacking: vec!["the broker at b:1 lacks EndTxn".to_owned()], ..whole.clone() };
    assert_eq!(query([None, Some(whole.clone())]).unwrap(), Some(whole.clone()));
    assert_eq!(query([Some(whole.clone()), None]).unwrap(), Some(whole), "one response suffices");
    for responses in [[Some(lacking.clone()), None], [None, Some(lacking)]] {
        let error = query(responses).unwrap_err();
        assert_eq!((error.kind, &*error.message), (ErrorKind::Refused, "the broker at b:1 lacks EndTxn"));
    }
}
