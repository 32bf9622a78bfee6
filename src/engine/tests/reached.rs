//! Goal: brokers are asked what they can do before anything is done with them, also if they come up during the start.

use std::sync::Mutex;

use super::faulty::{Faults, Faulty};
use super::*;
use crate::cluster::Abilities;

fn asked(answers: [Option<Abilities>; 2]) -> Result<Option<Abilities>, cluster::Error> {
    let faults = Faults { abilities: Mutex::new(answers.into()), ..Faults::default() };
    let site = Site::new();
    reach::ask(&Faulty { inner: site.cluster.clone(), faults: Arc::new(faults) })
}

/// Brokers and ratchet are started together: the brokers do not answer before they are up.
#[test]
fn brokers_that_come_up_meanwhile_are_asked_again() {
    let whole = Abilities { asked: 1, ..Abilities::default() };
    let lacking = Abilities { lacking: vec!["the broker at b:1 lacks EndTxn".to_owned()], ..whole.clone() };
    assert_eq!(asked([None, Some(whole.clone())]).unwrap(), Some(whole.clone()));
    assert_eq!(asked([Some(whole.clone()), None]).unwrap(), Some(whole), "once is enough");
    for answers in [[Some(lacking.clone()), None], [None, Some(lacking)]] {
        let error = asked(answers).unwrap_err();
        assert_eq!((error.kind, &*error.message), (ErrorKind::Refused, "the broker at b:1 lacks EndTxn"));
    }
}
