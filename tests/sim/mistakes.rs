//! The judge is judged: where the crate is built with the feature `sabotage` (`make sim-mistakes`), the engine is
//! sabotaged in one way after the other, cluster and disk tell one lie after the other ([`crate::lies`]), and each has to be seen. Without the feature nothing of this is here.

#[cfg(feature = "sabotage")]
mod judged;

/// Runs a part of what is simulated, which may make the mistake that is wanted on this thread. What judges is never
/// run in here.
#[cfg(feature = "sabotage")]
pub fn during<T>(part: impl FnOnce() -> T) -> T {
    judged::begin();
    let done = part();
    judged::end();
    done
}

/// Runs a part of what is simulated.
#[cfg(not(feature = "sabotage"))]
pub fn during<T>(part: impl FnOnce() -> T) -> T {
    part()
}
