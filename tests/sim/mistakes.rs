//! Tests the judge: with the feature `sabotage` (`make sim-mistakes`), the engine is sabotaged in one way after
//! another, and cluster and disk tell one lie after another ([`crate::lies`]); the judge must see each. Without the
//! feature none of this is compiled.

#[cfg(feature = "sabotage")]
mod judged;

/// Runs a part of the simulation, in which the wanted mistake is made on this thread. The judge never runs in here.
#[cfg(feature = "sabotage")]
pub fn during<T>(part: impl FnOnce() -> T) -> T {
    judged::begin();
    let done = part();
    judged::end();
    done
}

/// Runs a part of the simulation.
#[cfg(not(feature = "sabotage"))]
pub fn during<T>(part: impl FnOnce() -> T) -> T {
    part()
}
