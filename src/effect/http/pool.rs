//! Connections, handed out in the order in which they were requested.
//!
//! Requests wait in line, and connections are made for those that wait: for HTTP/1.1 one for each request, for HTTP/2
//! one for as many requests as the other side allows at once. A connection that becomes free goes to the first in line,
//! even if it was made for another request. Until it is known which version an origin speaks, only one connection is
//! made.
//!
//! **Bounds.** Only requests with a permit wait, so there are at most `in_flight` connections in use, and as many being
//! made; at most `in_flight` idle ones are kept for each origin, for [`IDLE_MAX`].

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::connect::{Made, One, Two, connect};
use super::message::Origin;
use super::settings::Shared;
use crate::effect::thread::Tasks;

/// How long an idle connection is kept. Servers close theirs after 5 s or more; a request that crosses with the close
/// is lost, and without a key it is in doubt.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// The connections of a lane.
pub(super) struct Pool {
    pub shared: Arc<Shared>,
    tasks: Tasks,
    places: RefCell<HashMap<Origin, Rc<Place>>>,
}

/// The connections to one origin.
struct Place {
    shared: Arc<Shared>,
    tasks: Tasks,
    origin: Origin,
    line: RefCell<Line>,
}

/// Connections, each with the time when it was last used.
type Kept<T> = Vec<(T, Instant)>;

#[derive(Default)]
struct Line {
    waiting: VecDeque<oneshot::Sender<Result<Lease, String>>>,
    idle: Kept<One>,
    two: Kept<Rc<TwoInUse>>,
    connecting: usize,
    /// Whether the last connection spoke HTTP/1.1.
    is_one: bool,
}

/// An HTTP/2 connection, with the number of requests on it.
struct TwoInUse {
    two: Two,
    used: std::cell::Cell<usize>,
}

/// A connection that one request may use. Dropping it closes an HTTP/1.1 connection if something was sent on it, unless
/// it can be used again.
pub(super) struct Lease {
    place: Rc<Place>,
    way: Option<Way>,
    is_used: bool,
}

enum Way {
    One(One),
    Two(Rc<TwoInUse>),
}

/// The part of a connection that takes a request.
pub(super) enum Sender<'a> {
    One(&'a mut One),
    Two(h2::client::SendRequest<bytes::Bytes>),
}

impl Pool {
    pub fn new(shared: Arc<Shared>, tasks: Tasks) -> Self {
        Self { shared, tasks, places: RefCell::default() }
    }

    /// A connection to an origin, when the request's turn has come.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn lease(&self, origin: &Origin) -> Result<Lease, String> {
        let turn = {
            let place = self.place(origin);
            let (tell, turn) = oneshot::channel();
            place.line.borrow_mut().waiting.push_back(tell);
            place.tend();
            turn
        };
        turn.await.unwrap_or_else(|_| Err("the thread that makes the calls has ended".to_owned()))
    }

    fn place(&self, origin: &Origin) -> Rc<Place> {
        let mut places = self.places.borrow_mut();
        let place = places.entry(origin.clone()).or_insert_with(|| {
            let line = RefCell::new(Line { is_one: !origin.is_tls, ..Line::default() });
            let (shared, tasks) = (Arc::clone(&self.shared), self.tasks.clone());
            Rc::new(Place { shared, tasks, origin: origin.clone(), line })
        });
        Rc::clone(place)
    }

    /// Closes idle connections periodically.
    pub async fn sweep(self: Rc<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            // Closed connections are dropped outside of the borrow.
            let mut closed = Vec::new();
            self.places.borrow_mut().retain(|_, place| {
                let line = &mut *place.line.borrow_mut();
                closed.push(line.take_old());
                let is_in_use = Rc::strong_count(place) > 1 || !line.waiting.is_empty();
                is_in_use || !line.idle.is_empty() || !line.two.is_empty()
            });
        }
    }
}

impl Line {
    fn take_old(&mut self) -> (Kept<One>, Kept<Rc<TwoInUse>>) {
        let is_old = |since: &Instant| since.elapsed() > IDLE_MAX;
        let idle = self.idle.extract_if(.., |(one, since)| is_old(since) || one.sender.is_closed()).collect();
        let two = self.two.extract_if(.., |(two, since)| two.two.is_closed() || two.used.get() == 0 && is_old(since));
        (idle, two.collect())
    }

    /// A connection that can take a request at once.
    fn free(&mut self) -> Option<Way> {
        let at = self.two.iter().position(|(two, _)| !two.two.is_closed() && two.used.get() < two.two.allowed());
        if let Some(at) = at {
            let two = Rc::clone(&self.two[at].0);
            two.used.set(two.used.get() + 1);
            return Some(Way::Two(two));
        }
        // The most recently used one, so that the others can be closed.
        while let Some((one, since)) = self.idle.pop() {
            if one.sender.is_ready() && since.elapsed() <= IDLE_MAX {
                return Some(Way::One(one));
            }
        }
        None
    }
}

impl Place {
    /// Hands out free connections, and has others made for the requests that still wait.
    fn tend(self: &Rc<Self>) {
        loop {
            let (tell, way) = {
                let line = &mut *self.line.borrow_mut();
                line.waiting.retain(|tell| !tell.is_closed());
                if line.waiting.is_empty() {
                    return;
                }
                let Some(way) = line.free() else { break };
                (line.waiting.pop_front(), way)
            };
            let lease = Lease { place: Rc::clone(self), way: Some(way), is_used: false };
            if let Some(tell) = tell {
                // The request cannot have gone since the check above.
                drop(tell.send(Ok(lease)));
            }
        }
        let line = &mut *self.line.borrow_mut();
        let wanted = if line.is_one { line.waiting.len() } else { 1 };
        while line.connecting < wanted {
            line.connecting += 1;
            self.tasks.start(Rc::clone(self).make());
        }
    }

    /// Makes a connection.
    async fn make(self: Rc<Self>) {
        let made = connect(&self.shared, &self.origin).await;
        let mut failed = Vec::new();
        {
            let line = &mut *self.line.borrow_mut();
            line.connecting -= 1;
            match made {
                Ok(Made::One(one)) => {
                    line.is_one = true;
                    line.idle.push((one, Instant::now()));
                }
                Ok(Made::Two(two)) => {
                    line.is_one = false;
                    line.two.push((Rc::new(TwoInUse { two, used: 0.into() }), Instant::now()));
                }
                Err(why) => {
                    // If the connection was made for all that wait, all of them get the error.
                    let heard = if line.is_one { 1 } else { line.waiting.len() };
                    failed.extend(line.waiting.drain(..heard.min(line.waiting.len())).map(|tell| (tell, why.clone())));
                }
            }
        }
        for (tell, why) in failed {
            // A caller that has stopped waiting needs no error.
            drop(tell.send(Err(why)));
        }
        self.tend();
    }

    fn put_back(self: &Rc<Self>, one: One) {
        let line = &mut *self.line.borrow_mut();
        if line.idle.len() < self.shared.in_flight {
            line.idle.push((one, Instant::now()));
        }
    }
}

impl Lease {
    /// The part of the connection that takes the request.
    pub fn sender(&mut self) -> Option<Sender<'_>> {
        self.is_used = true;
        match self.way.as_mut()? {
            Way::One(one) => {
                one.unfinished.set(true);
                Some(Sender::One(one))
            }
            Way::Two(two) => Some(Sender::Two(two.two.sender())),
        }
    }

    /// Gives up a connection that does not answer. On an HTTP/2 connection the other requests go on; it takes no new
    /// ones.
    pub fn retire(mut self) {
        self.is_used = true;
        if let Some(Way::Two(two)) = &self.way {
            two.two.unfinished.set(true);
            self.place.line.borrow_mut().two.retain(|(other, _)| !Rc::ptr_eq(other, two));
        }
    }

    /// Records that the request is over, and that the connection is ready for another one.
    pub fn can_be_used_again(&mut self) {
        self.is_used = false;
        if let Some(Way::One(one)) = &self.way {
            one.unfinished.set(false);
        }
    }

    /// Whether it is HTTP/1.1.
    pub fn is_one(&self) -> bool {
        matches!(self.way, Some(Way::One(_)))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.way.take() {
            Some(Way::One(one)) if !self.is_used => self.place.put_back(one),
            Some(Way::One(_)) | None => {}
            Some(Way::Two(two)) => {
                two.used.set(two.used.get() - 1);
                let line = &mut *self.place.line.borrow_mut();
                if let Some((_, since)) = line.two.iter_mut().find(|(other, _)| Rc::ptr_eq(other, &two)) {
                    *since = Instant::now();
                }
            }
        }
        self.place.tend();
    }
}
