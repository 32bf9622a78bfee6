//! How many file descriptors this process may have open, and what is left of the bounds on clients with so few.
//!
//! A client's connection takes one, and each request that is passed on may take another one, for the service: those that
//! are on their way to clients, and those under a key, which go on when their clients are gone. Without a descriptor
//! nothing could be taken, nothing passed on, and the store could not open its files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::settings::Bounds;

/// What the store, the log, metrics and connections that are being closed need.
const OTHERS: usize = 512;

/// These bounds, as far as the system has descriptors for them: as many as this process is allowed.
pub fn fitted(bounds: Bounds) -> Bounds {
    let Some(allowed) = allowed() else { return bounds };
    let fitted = fit(bounds, allowed);
    let names = [
        ("connections_max", bounds.connections_max, fitted.connections_max),
        ("requests_max", bounds.requests_max, fitted.requests_max),
        ("at_work_max", bounds.at_work_max, fitted.at_work_max),
    ];
    for (bound, wanted, left) in names.into_iter().filter(|(_, wanted, left)| left < wanted) {
        tracing::warn!(
            bound,
            wanted,
            left,
            descriptors = allowed,
            "the system allows too few open files for a bound: raise LimitNOFILE, or `ulimit -n`"
        );
    }
    fitted
}

/// Asks for all that the system gives; how many that are, if that is limited.
fn allowed() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files could not be raised");
        }
    }
    getrlimit(Resource::Nofile).current.map(|allowed| usize::try_from(allowed).unwrap_or(usize::MAX))
}

/// All bounds are made smaller by the same part.
fn fit(bounds: Bounds, allowed: usize) -> Bounds {
    let wanted = bounds.connections_max + bounds.requests_max + bounds.at_work_max;
    let there = allowed.saturating_sub(OTHERS).max(allowed / 4);
    if wanted <= there {
        return bounds;
    }
    let part = |bound: usize| (bound.saturating_mul(there) / wanted).max(1);
    Bounds {
        connections_max: part(bounds.connections_max),
        requests_max: part(bounds.requests_max),
        at_work_max: part(bounds.at_work_max),
        ..bounds
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bounds([connections_max, requests_max, at_work_max]: [usize; 3]) -> Bounds {
        Bounds {
            connections_max,
            requests_max,
            at_work_max,
            bodies_bytes_max: 1,
            head_bytes_max: 1,
            body_rate_min: 1,
            has_shares: true,
            head_wait: Duration::ZERO,
            idle_wait: Duration::ZERO,
        }
    }

    #[test]
    fn bounds_fit_into_the_descriptors_that_there_are() {
        let left = |allowed| {
            let left = fit(bounds([1_024, 2_048, 1_024]), allowed);
            [left.connections_max, left.requests_max, left.at_work_max]
        };
        assert_eq!(left(65_536), [1_024, 2_048, 1_024]);
        assert_eq!(left(4_096 + OTHERS), [1_024, 2_048, 1_024]);
        assert_eq!(left(1_024), [128, 256, 128]);
        assert_eq!(left(64), [4, 8, 4]);
        assert_eq!(fit(bounds([1, 1_000_000, 1]), 1_024).connections_max, 1, "never none");
    }
}
