//! One process alone on a cluster without faults: a loop runs whatever is due next.

use std::sync::{Arc, Mutex, PoisonError};

use crate::coroutine::Strand;
use crate::kafka::{MS, SECOND, Time};
use crate::world::{Process, Wire, World};

/// How long it may run.
const PATIENCE: Time = 600 * SECOND;

/// Runs `body` as a task of a process, together with the tasks that its clients start, and returns its result.
pub fn alone<T: Send + 'static>(seed: u64, body: impl FnOnce(&Process) -> T + Send + 'static) -> T {
    let world = World::new(seed, Wire::default(), false);
    let process = world.process();
    let result: Arc<Mutex<Option<T>>> = Arc::new(Mutex::new(None));
    let (own, setter) = (process.clone(), result.clone());
    process.spawn(move || {
        let done = body(&own);
        *setter.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    });
    let mut driver = Driver { world, strands: Vec::new(), marker_at: Time::MAX };
    loop {
        driver.step();
        if let Some(done) = result.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // What is left of the clients ends silently.
            driver.world.lock().processes[process.number].is_dead = true;
            return done;
        }
        assert!(process.now() < PATIENCE, "it does not end");
    }
}

/// Advances time.
struct Driver {
    world: World,
    strands: Vec<(usize, Strand)>,
    marker_at: Time,
}

/// What is due.
#[derive(Clone, Copy)]
enum Due {
    Task(usize),
    Tick,
    Marker,
    Net,
}

impl Driver {
    fn step(&mut self) {
        let unstarted = std::mem::take(&mut self.world.lock().unstarted);
        self.strands.extend(unstarted.into_iter().map(|(task, body)| (task, Strand::new(body))));
        let (at, due) = self.next();
        self.world.lock().broker.now = at;
        match due {
            Due::Task(at) => self.resume(at),
            Due::Tick => self.world.lock().broker.tick(),
            Due::Net => self.world.lock().serve(),
            Due::Marker => {
                let mut state = self.world.lock();
                let markers = state.broker.markers();
                let marker = &markers[state.random.below(markers.len() as u64) as usize];
                state.broker.write_marker(marker);
                self.marker_at = Time::MAX;
            }
        }
    }

    fn next(&mut self) -> (Time, Due) {
        let mut state = self.world.lock();
        let now = state.now();
        if !state.broker.coordinator.has_markers() {
            self.marker_at = Time::MAX;
        } else if self.marker_at == Time::MAX {
            self.marker_at = now + state.random.between(MS / 10, 20 * MS);
        }
        let tasks = self.strands.iter().enumerate().map(|(at, (task, _))| (state.tasks[*task].wake, Due::Task(at)));
        let net = state.links.next(now, state.broker.topics.is_touched);
        let tick = state.broker.next_tick().unwrap_or(Time::MAX);
        let own = [(tick, Due::Tick), (self.marker_at, Due::Marker), (net, Due::Net)];
        let (at, due) = tasks.chain(own).min_by_key(|(at, _)| *at).expect("there are two at least");
        assert!(at < Time::MAX, "all tasks wait for ever");
        (at.max(now), due)
    }

    fn resume(&mut self, at: usize) {
        let (task, strand) = &mut self.strands[at];
        {
            let mut state = self.world.lock();
            state.running = *task;
            state.tasks[*task].wake = Time::MAX;
        }
        if strand.resume() {
            self.strands.remove(at);
        }
    }
}
