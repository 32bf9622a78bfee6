//! What distinguishes one moment of two lanes from another.

use super::Lanes;
use crate::mistakes::Mistake;

/// In place of a lane.
pub const NOBODY: u8 = 9;
/// The tasks.
pub const TASKS: [usize; 2] = [0, 1];
/// A token that was taken in this step; the second task's is the next one.
pub const FRESH: u8 = 200;

const UNKNOWN: u8 = 254;

/// What a transaction changes of one task; `at` is the number of records processed after it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Part {
    pub token: u8,
    pub former: u8,
    pub at: u8,
}

/// A task's position row, and the effects of its records, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Row {
    pub epoch: u8,
    pub redo: Part,
    /// By mistake only: the other task's part of the same transaction.
    pub twin: Part,
    pub done: u8,
}

/// A task's changelog.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Log {
    pub token: u8,
    pub at: u8,
}

/// An open database transaction. Sets are of tasks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Open {
    pub who: u8,
    /// The rows that it is to change.
    pub rows: u8,
    /// The tasks whose effects are in it.
    pub effects: u8,
    /// The rows whose locks it holds.
    pub locked: u8,
    pub sent: bool,
    pub parts: [Part; 2],
}

/// A Kafka transaction that has not ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Pending {
    pub who: u8,
    pub tasks: u8,
    pub asked: bool,
    pub parts: [Part; 2],
}

/// What becomes of a task in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Phase {
    #[default]
    Absent,
    Settle,
    Claim,
    Redo,
    Ready,
    Refused,
}

/// A task in a lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Task {
    pub phase: Phase,
    pub epoch: u8,
    pub token: u8,
    pub at: u8,
    pub part: Part,
    pub twin: Part,
    /// Whether the group has given it to the other lane meanwhile.
    pub moved: bool,
}

impl Task {
    /// A task that begins its restore.
    pub fn restoring(moved: bool) -> Self {
        Self { phase: Phase::Settle, moved, ..Self::default() }
    }
}

/// What a lane does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Doing {
    #[default]
    Nothing,
    /// Step 2, row by row.
    Locking,
    Effects,
    Committing,
    /// Step 4 or a redo is to begin.
    Kafka,
    Offered,
    Ending,
}

/// A lane, in a process of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Lane {
    pub doing: Doing,
    /// Whether it is in the group's generation.
    pub is_current: bool,
    /// The tasks of its transaction.
    pub set: u8,
    pub redo: bool,
    pub tasks: [Task; 2],
}

/// A moment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub assigned: [u8; 2],
    pub logs: [Log; 2],
    pub letters: [u8; 2],
    pub rows: [Row; 2],
    pub opens: [Option<Open>; 3],
    pub pending: [Option<Pending>; 3],
    pub lanes: [Lane; 2],
    pub moves: u8,
    pub kills: u8,
}

impl State {
    /// Lane A has both tasks.
    pub fn new(world: &Lanes) -> Self {
        Self {
            assigned: [0; 2],
            logs: [Log::default(); 2],
            letters: [0; 2],
            rows: [Row::default(); 2],
            opens: [None; 3],
            pending: [None; 3],
            lanes: [Lane::default(); 2],
            moves: world.moves,
            kills: world.kills,
        }
    }

    pub fn lane(&mut self, who: u8) -> &mut Lane {
        &mut self.lanes[usize::from(who)]
    }

    /// Whether nobody has the lock of a task's row.
    pub fn is_free(&self, task: usize) -> bool {
        !self.opens.iter().flatten().any(|open| open.locked >> task & 1 == 1)
    }

    /// What the lane has asked for goes on without it.
    pub fn detach(&mut self, who: u8) {
        self.opens.iter_mut().flatten().filter(|one| one.who == who).for_each(|one| one.who = NOBODY);
        self.pending.iter_mut().flatten().filter(|one| one.who == who).for_each(|one| one.who = NOBODY);
    }

    /// The lane's transaction is over for it. The tasks in `restore` restore, the others are as they were.
    pub fn end(&mut self, who: u8, restore: u8) {
        let lane = self.lane(who);
        let set = std::mem::take(&mut lane.set);
        (lane.doing, lane.redo) = (Doing::Nothing, false);
        for task in TASKS {
            let one = &mut lane.tasks[task];
            if restore >> task & 1 == 1 {
                *one = Task::restoring(one.moved);
            } else if set >> task & 1 == 1 && one.phase == Phase::Ready {
                (one.part, one.twin) = (Part::default(), Part::default());
            }
        }
    }

    /// The row that a lane waits for inside its own transaction, and the rows that it holds.
    fn waits(&self, who: u8, world: &Lanes) -> Option<(u8, u8)> {
        let open = self.opens.iter().flatten().find(|open| open.who == who)?;
        let lane = &self.lanes[usize::from(who)];
        let other = |task: &usize| open.locked >> task & 1 == 0 && !self.is_free(*task);
        let locks = |task: &usize| lane.doing == Doing::Locking && open.rows >> task & 1 == 1;
        let claims = |task: &usize| world.errs(Mistake::ClaimInside) && lane.tasks[*task].phase == Phase::Claim;
        let wanted = TASKS.into_iter().filter(|task| other(task) && (locks(task) || claims(task)));
        wanted.map(|task| (1 << task, open.locked)).next()
    }

    /// Whether each lane waits for what the other holds.
    pub fn is_deadlocked(&self, world: &Lanes) -> bool {
        let crossed = |(a, b): ((u8, u8), (u8, u8))| a.0 & b.1 != 0 && b.0 & a.1 != 0;
        self.waits(0, world).zip(self.waits(1, world)).is_some_and(crossed)
    }

    /// Numbers tokens in the order in which they are met, and epochs by whether they are the row's.
    pub fn renumber(&mut self) {
        self.opens
            .sort_by_key(|one| one.map_or((u8::MAX, 0, 0, 0), |one| (one.who, one.rows, one.locked, one.effects)));
        self.pending.sort_by_key(|one| one.map_or((u8::MAX, 0, false), |one| (one.who, one.tasks, one.asked)));
        let mut names = Names { known: [UNKNOWN; 256], next: 1 };
        names.known[0] = 0;
        for task in TASKS {
            names.token(&mut self.logs[task].token);
            names.part(&mut self.rows[task].redo);
            names.part(&mut self.rows[task].twin);
        }
        for one in self.lanes.iter_mut().flat_map(|lane| &mut lane.tasks) {
            names.token(&mut one.token);
            names.part(&mut one.part);
            names.part(&mut one.twin);
        }
        self.opens.iter_mut().flatten().flat_map(|one| &mut one.parts).for_each(|part| names.part(part));
        self.pending.iter_mut().flatten().flat_map(|one| &mut one.parts).for_each(|part| names.part(part));
        // Nothing goes back in time here: an epoch that was left behind never comes again.
        for task in TASKS {
            let epoch = self.rows[task].epoch;
            self.lanes.iter_mut().for_each(|lane| {
                let own = &mut lane.tasks[task].epoch;
                *own = u8::from(*own == epoch && epoch != 0);
            });
            self.rows[task].epoch = u8::from(epoch != 0);
        }
    }
}

struct Names {
    known: [u8; 256],
    next: u8,
}

impl Names {
    fn token(&mut self, token: &mut u8) {
        let known = &mut self.known[usize::from(*token)];
        if *known == UNKNOWN {
            *known = self.next;
            self.next += 1;
        }
        *token = *known;
    }

    fn part(&mut self, part: &mut Part) {
        self.token(&mut part.token);
        self.token(&mut part.former);
    }
}
