//! Goal: profiles draw all that they say.

use super::*;

fn drawn(draw: Draw) -> impl Iterator<Item = Profile> {
    (0..300).map(move |seed| draw(&mut Random::new(seed)))
}

#[test]
fn profiles_use_both_protocols_except_calm_and_those_of_late_requests() {
    let uses_both = |(name, _): &(&str, Draw)| !["calm", "restless", "doubtful"].contains(name);
    for (name, draw) in PROFILES.into_iter().filter(uses_both) {
        for protocol in [Protocol::V1, Protocol::V2] {
            assert!(drawn(draw).any(|profile| profile.protocol == protocol), "{name} {protocol:?}");
        }
    }
}

#[test]
fn every_upheaval_is_drawn() {
    for upheaval in Upheaval::OF_STATE.into_iter().chain(Upheaval::OF_INPUT) {
        let draws = [Profile::upset as Draw, Profile::uprooted as Draw];
        let found = draws.into_iter().flat_map(drawn).any(|profile| profile.upheaval == Some(upheaval));
        assert!(found, "{upheaval:?}");
    }
}

#[test]
fn calm_profile_has_no_faults() {
    assert!(drawn(Profile::calm).all(|profile| !profile.is_troubled()));
    assert!(drawn(Profile::swept).all(|profile| profile.is_troubled() && profile.clocks == 0));
}
