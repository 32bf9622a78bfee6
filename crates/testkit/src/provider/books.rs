//! What a provider remembers, and the rules by which it acts.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Answer, Move, Options, Plan, Seen, Then};

/// What a provider remembers.
pub struct Books {
    pub key_header: String,
    honoured_for: Duration,
    pub keys: HashMap<String, Known>,
    pub next: VecDeque<Move>,
    pub scripts: HashMap<String, VecDeque<Move>>,
    pub always: Move,
    pub acts: BTreeMap<String, u32>,
    pub by_target: BTreeMap<String, u32>,
    pub receipts: BTreeMap<String, String>,
    receipts_made: u64,
    pub seen: Vec<Seen>,
    /// Requests that are there, and the most that were.
    pub now: usize,
    pub most: usize,
}

/// A key.
pub struct Known {
    /// What makes two requests the same.
    request: (String, String, Vec<u8>),
    since: Instant,
    /// How the first request was answered; `None` while it is under way.
    pub first: Option<Answer>,
}

/// What is to be done with a connection, or a stream, in the end.
pub enum Reply {
    Answer(Answer),
    Close,
    Reset,
}

/// The head of a request was seen: its number.
#[derive(Clone, Copy)]
pub struct Number(pub usize);

impl Books {
    pub fn new(options: &Options) -> Self {
        Self {
            key_header: options.key_header.clone(),
            honoured_for: options.honoured_for,
            keys: HashMap::new(),
            next: VecDeque::new(),
            scripts: HashMap::new(),
            always: Move::act(),
            acts: BTreeMap::new(),
            by_target: BTreeMap::new(),
            receipts: BTreeMap::new(),
            receipts_made: 0,
            seen: Vec::new(),
            now: 0,
            most: 0,
        }
    }

    /// A head has come.
    pub fn head(&mut self, seen: Seen) -> Number {
        self.seen.push(seen);
        self.now += 1;
        self.most = self.most.max(self.now);
        Number(self.seen.len() - 1)
    }

    fn script(&mut self, key: Option<&str>, target: &str) -> Move {
        let mut of = |name: &str| self.scripts.get_mut(name).and_then(VecDeque::pop_front);
        let own = key.and_then(&mut of).or_else(|| of(target));
        own.or_else(|| self.next.pop_front()).unwrap_or_else(|| self.always.clone())
    }

    /// A number that no other act has.
    fn receipt(&mut self, target: &str) -> Plan {
        self.receipts_made += 1;
        let text = format!("{{\"receipt\":{}}}", self.receipts_made);
        self.receipts.entry(target.to_owned()).or_insert_with(|| text.clone());
        Plan::Bytes(text.into_bytes())
    }

    /// What the rules answer to a request with a key, if it is not to act. Otherwise the key is under way.
    fn by_key(&mut self, key: &str, request: (String, String, Vec<u8>)) -> Option<Answer> {
        let honoured_for = self.honoured_for;
        if self.keys.get(key).is_some_and(|known| known.since.elapsed() >= honoured_for) {
            self.keys.remove(key);
        }
        let answer = |status, body: &str, headers: &[(&str, &str)]| {
            let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Some(Answer { status, headers, body: Plan::Bytes(body.as_bytes().to_vec()) })
        };
        match self.keys.get(key) {
            None => {
                self.keys.insert(key.to_owned(), Known { request, since: Instant::now(), first: None });
                None
            }
            Some(known) if known.request != request => {
                let body = "{\"error\":{\"type\":\"idempotency_error\",\"message\":\"another request had this key\"}}";
                answer(400, body, &[])
            }
            Some(Known { first: None, .. }) => answer(409, "{\"error\":\"it is under way\"}", &[]),
            Some(Known { first: Some(first), .. }) => {
                let mut first = first.clone();
                first.headers.push(("idempotent-replayed".to_owned(), "true".to_owned()));
                Some(first)
            }
        }
    }
}

fn locked(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Does what is to be done with a request, which has come whole.
pub async fn reply(books: Arc<Mutex<Books>>, Number(number): Number, body: Vec<u8>) -> Reply {
    let (script, key, target, is_known) = {
        let mut books = locked(&books);
        let seen = &mut books.seen[number];
        seen.body = Some(body.clone());
        let (method, target, key) = (seen.method.clone(), seen.target.clone(), seen.key.clone());
        let script = books.script(key.as_deref(), &target);
        let request = (method, target.clone(), body);
        let known = key.as_ref().filter(|_| script.acts).and_then(|key| books.by_key(key, request));
        (script, key, target, known)
    };
    if let Some(answer) = is_known {
        return Reply::Answer(answer);
    }
    tokio::time::sleep(script.slow).await;
    let mut script = script;
    if script.acts {
        let mut books = locked(&books);
        *books.by_target.entry(target.clone()).or_default() += 1;
        *books.acts.entry(key.clone().unwrap_or_else(|| target.clone())).or_default() += 1;
        if let Then::Answer(answer) | Then::Unheard(answer) = &mut script.then
            && matches!(answer.body, Plan::Receipt)
        {
            answer.body = books.receipt(&target);
        }
        let answer = match &script.then {
            Then::Answer(answer) | Then::Unheard(answer) => answer.clone(),
            // What would have been answered.
            _ => Answer { status: 201, headers: Vec::new(), body: Plan::Bytes(b"{\"done\":true}".to_vec()) },
        };
        if let Some(known) = key.as_ref().and_then(|key| books.keys.get_mut(key)) {
            known.first = Some(answer);
        }
    }
    tokio::time::sleep(script.late).await;
    match script.then {
        Then::Answer(answer) => Reply::Answer(answer),
        Then::Close | Then::Unheard(_) => Reply::Close,
        Then::Reset => Reply::Reset,
        Then::Silence => std::future::pending().await,
    }
}

/// A request that is there, as long as this is.
pub struct There(pub Arc<Mutex<Books>>);

impl Drop for There {
    fn drop(&mut self) {
        let mut books = locked(&self.0);
        books.now = books.now.saturating_sub(1);
    }
}
