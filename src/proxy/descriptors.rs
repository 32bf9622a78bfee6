//! The limit of open files, and bounds on clients that fit into it.
//!
//! A client's connection uses a descriptor, and each request in progress may use another for the service; a request
//! under a key is in progress even when its client is gone. Without descriptors no connection could be accepted, no
//! request passed on, and the store could not open its files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::settings::Bounds;

/// Descriptors for the store, the log, metrics and connections that are being closed. Clients get the others, and at
/// least a quarter of all.
const OTHERS: usize = 512;

/// These bounds, reduced to fit into the limit of open files, which is raised as far as possible.
pub fn fitted(bounds: Bounds) -> Bounds {
    let Some(allowed) = allowed() else { return bounds };
    let fitted = fit(bounds, allowed);
    let changes = [
        ("connections_max", bounds.connections_max, fitted.connections_max),
        ("requests_max", bounds.requests_max, fitted.requests_max),
        ("at_work_max", bounds.at_work_max, fitted.at_work_max),
    ];
    for (bound, wanted, left) in changes.into_iter().filter(|(_, wanted, left)| left < wanted) {
        tracing::warn!(
            bound,
            wanted,
            left,
            descriptors = allowed,
            "a limit was reduced because the system allows too few open files: raise LimitNOFILE or `ulimit -n`"
        );
    }
    fitted
}

/// Raises the limit of open files as far as possible, and returns it; `None` if there is no limit.
fn allowed() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit on open files could not be raised");
        }
    }
    getrlimit(Resource::Nofile).current.map(|allowed| usize::try_from(allowed).unwrap_or(usize::MAX))
}

/// Reduces all bounds in proportion.
fn fit(bounds: Bounds, allowed: usize) -> Bounds {
    let wanted = bounds.connections_max + bounds.requests_max + bounds.at_work_max;
    let available = allowed.saturating_sub(OTHERS).max(allowed / 4);
    if wanted <= available {
        return bounds;
    }
    let in_proportion = |bound: usize| (bound.saturating_mul(available) / wanted).max(1);
    Bounds {
        connections_max: in_proportion(bounds.connections_max),
        requests_max: in_proportion(bounds.requests_max),
        at_work_max: in_proportion(bounds.at_work_max),
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
    fn bounds_fit_into_the_limit_of_open_files() {
        let reduced = |allowed| {
            let reduced = fit(bounds([1_024, 2_048, 1_024]), allowed);
            [reduced.connections_max, reduced.requests_max, reduced.at_work_max]
        };
        assert_eq!(reduced(65_536), [1_024, 2_048, 1_024]);
        assert_eq!(reduced(4_096 + OTHERS), [1_024, 2_048, 1_024]);
        assert_eq!(reduced(1_024), [128, 256, 128]);
        assert_eq!(reduced(64), [4, 8, 4]);
        assert_eq!(fit(bounds([1, 1_000_000, 1]), 1_024).connections_max, 1, "never 0");
    }
}
