//! What lanes, PostgreSQL, Kafka and the group do.

use super::state::{Doing, FRESH, Lane, Log, NOBODY, Open, Part, Pending, Phase, State, TASKS, Task};
use super::{Label, Lanes};
use crate::mistakes::Mistake;
use crate::search::Wrong;

type Go<'a> = &'a mut dyn FnMut(Label, State, Option<Wrong>);

/// The steps that a run may be spared.
pub const FAULTS: &[&str] = &[KILLED, MOVED, ANSWER_LOST, OUTCOME_LOST];
const KILLED: &str = "is killed";
const MOVED: &str = "the group gives it to the other lane";
const ANSWER_LOST: &str = "COMMIT's answer is lost; restores";
const OUTCOME_LOST: &str = "Kafka's answer is lost; restores";

/// The first task of a set.
fn first(set: u8) -> u8 {
    set & set.wrapping_neg()
}

fn has(set: u8, task: usize) -> bool {
    set >> task & 1 == 1
}

impl Lanes {
    pub(super) fn lane_steps(&self, state: &State, who: u8, go: Go) {
        let lane = &state.lanes[usize::from(who)];
        for task in TASKS {
            if !has(lane.set, task) {
                self.task_steps(state, who, task, go);
            }
        }
        match lane.doing {
            Doing::Nothing => self.begin(state, who, go),
            Doing::Locking => self.lock(state, who, go),
            Doing::Effects => {
                let mut to = *state;
                to.opens.iter_mut().flatten().filter(|open| open.who == who).for_each(|open| open.sent = true);
                to.lane(who).doing = Doing::Committing;
                go(Label { who, what: "step 3: COMMIT", set: lane.set }, to, None);
            }
            Doing::Committing => self.lose(state, who, (ANSWER_LOST, Mistake::OneRestores), go),
            Doing::Kafka => self.offer(state, who, go),
            Doing::Offered => {
                let mut to = *state;
                to.pending.iter_mut().flatten().filter(|one| one.who == who).for_each(|one| one.asked = true);
                to.lane(who).doing = Doing::Ending;
                go(Label { who, what: "step 4: asks for the commit", set: lane.set }, to, None);
            }
            Doing::Ending => self.lose(state, who, (OUTCOME_LOST, Mistake::OneRestoresFromKafka), go),
        }
    }

    /// A task's restore, beside whatever the lane does.
    fn task_steps(&self, state: &State, who: u8, task: usize, go: Go) {
        let lane = &state.lanes[usize::from(who)];
        let set = 1 << task;
        let mut to = *state;
        let one = &mut to.lane(who).tasks[task];
        match one.phase {
            Phase::Settle if !state.pending.iter().flatten().any(|pending| has(pending.tasks, task)) => {
                let log = state.logs[task];
                (one.phase, one.token, one.at) = (Phase::Claim, log.token, log.at);
                go(Label { who, what: "settled, reads Kafka", set }, to, None);
            }
            Phase::Claim => {
                // Never inside the lane's own open transaction.
                let inside = matches!(lane.doing, Doing::Locking | Doing::Effects | Doing::Committing);
                if state.is_free(task) && (!inside || self.errs(Mistake::ClaimInside)) {
                    let wrong = self.claim(&mut to, who, task);
                    go(Label { who, what: "claims the row, compares", set }, to, wrong);
                }
            }
            Phase::Redo if lane.doing == Doing::Nothing => {
                let lane = to.lane(who);
                (lane.doing, lane.set, lane.redo) = (Doing::Kafka, set, true);
                go(Label { who, what: "plays the redo", set }, to, None);
            }
            _ => {}
        }
    }

    fn claim(&self, to: &mut State, who: u8, task: usize) -> Option<Wrong> {
        let (log, row) = (to.logs[task], &mut to.rows[task]);
        row.epoch += 1;
        let row = *row;
        let one = &mut to.lane(who).tasks[task];
        one.epoch = row.epoch;
        if row.redo.token == one.token {
            one.phase = Phase::Ready;
            let differs = row.done != (1 << one.at) - 1;
            return differs
                .then_some("SILENT: the tokens are equal, and the effects are not those that Kafka knows of");
        }
        if row.redo.former == one.token {
            (one.phase, one.part, one.twin) = (Phase::Redo, row.redo, row.twin);
            return None;
        }
        if log.token == row.redo.token || log.token == row.redo.former {
            *one = Task::restoring(one.moved);
            return None;
        }
        one.phase = Phase::Refused;
        Some("FALSE REFUSAL: nothing has gone back in time")
    }

    /// Step 1 over one task or both, or learning of a new assignment.
    fn begin(&self, state: &State, who: u8, go: Go) {
        let lane = &state.lanes[usize::from(who)];
        if !lane.is_current {
            let mut to = *state;
            let lane = to.lane(who);
            lane.is_current = true;
            for task in TASKS {
                let one = &mut lane.tasks[task];
                if state.assigned[task] != who {
                    *one = Task::default();
                } else if one.phase == Phase::Absent || one.moved {
                    *one = Task::restoring(false);
                }
            }
            go(Label { who, what: "learns what it is assigned", set: 0 }, to, None);
        }
        let Some(slot) = state.opens.iter().position(Option::is_none) else { return };
        let is_ready = |task: usize| lane.tasks[task].phase == Phase::Ready && lane.tasks[task].at < self.records;
        for set in 1..4 {
            if TASKS.into_iter().any(|task| has(set, task) && !is_ready(task)) {
                continue;
            }
            let mut to = *state;
            let mut parts = [Part::default(); 2];
            let lane = to.lane(who);
            (lane.set, lane.doing) = (set, Doing::Locking);
            for task in TASKS.into_iter().filter(|task| has(set, *task)) {
                let one = &mut lane.tasks[task];
                parts[task] = Part { token: FRESH + task as u8, former: one.token, at: one.at + 1 };
                one.part = parts[task];
            }
            to.opens[slot] = Some(Open { who, rows: set, effects: set, locked: 0, sent: false, parts });
            go(Label { who, what: "step 1: judges; BEGIN", set }, to, None);
        }
    }

    /// Step 2, row by row, in the order of their tasks.
    fn lock(&self, state: &State, who: u8, go: Go) {
        let Some(at) = state.opens.iter().position(|open| open.is_some_and(|open| open.who == who)) else { return };
        let Some(open) = state.opens[at] else { return };
        let lane = &state.lanes[usize::from(who)];
        let missing: Vec<usize> =
            TASKS.into_iter().filter(|task| has(open.rows, *task) && !has(open.locked, *task)).collect();
        if missing.is_empty() {
            let mut to = *state;
            to.lane(who).doing = if open.rows == 0 { Doing::Nothing } else { Doing::Effects };
            if open.rows == 0 {
                to.opens[at] = None;
            }
            return go(Label { who, what: "step 3: effects", set: open.effects }, to, None);
        }
        let next = if self.errs(Mistake::AnyOrder) { missing.len() } else { 1 };
        for task in missing.into_iter().take(next).filter(|task| state.is_free(*task)) {
            let mut to = *state;
            let set = 1 << task;
            let (row, own) = (state.rows[task], lane.tasks[task]);
            let what = if row.epoch == own.epoch && row.redo.token == own.token {
                to.opens[at] = Some(Open { locked: open.locked | set, ..open });
                "step 2: UPDATE"
            } else if self.errs(Mistake::NoRollback) {
                to.opens[at] = Some(Open { rows: open.rows & !set, ..open });
                let lane = to.lane(who);
                lane.set &= !set;
                lane.tasks[task] = Task::restoring(own.moved);
                "step 2: no row; goes on all the same"
            } else {
                to.opens[at] = None;
                to.end(who, set);
                "step 2: no row; rolls back, this task restores"
            };
            go(Label { who, what, set }, to, None);
        }
    }

    /// An outcome is unknown: all tasks of the transaction restore.
    fn lose(&self, state: &State, who: u8, (what, one_only): (&'static str, Mistake), go: Go) {
        let mut to = *state;
        let set = state.lanes[usize::from(who)].set;
        let restore = if self.errs(one_only) { first(set) } else { set };
        to.detach(who);
        to.end(who, restore);
        go(Label { who, what, set: restore }, to, None);
    }

    /// Step 4: everything up to the offsets, which need the group's generation.
    fn offer(&self, state: &State, who: u8, go: Go) {
        let mut to = *state;
        let lane = &state.lanes[usize::from(who)];
        if !lane.is_current {
            to.end(who, lane.set);
            return go(Label { who, what: "Kafka: another generation; restores", set: lane.set }, to, None);
        }
        let Some(slot) = state.pending.iter().position(Option::is_none) else { return };
        let (mut tasks, mut parts) = (lane.set, lane.tasks.map(|one| one.part));
        if lane.redo && self.errs(Mistake::LaneWideRedo) {
            for task in TASKS.into_iter().filter(|task| has(lane.set, *task) && lane.tasks[*task].twin.token != 0) {
                parts[1 - task] = lane.tasks[task].twin;
                tasks = 3;
            }
        }
        TASKS.into_iter().filter(|task| !has(tasks, *task)).for_each(|task| parts[task] = Part::default());
        to.pending[slot] = Some(Pending { who, tasks, asked: false, parts });
        to.lane(who).doing = Doing::Offered;
        go(Label { who, what: "step 4: writes, sends the offsets", set: tasks }, to, None);
    }

    pub(super) fn outside_steps(&self, state: &State, go: Go) {
        for at in 0..state.opens.len() {
            if let Some(open) = state.opens[at] {
                self.database(state, at, open, go);
            }
            if let Some(one) = state.pending[at] {
                self.coordinator(state, at, one, go);
            }
        }
        for who in (0..2).filter(|_| state.kills > 0) {
            let mut to = *state;
            to.kills -= 1;
            to.detach(who);
            *to.lane(who) = Lane::default();
            go(Label { who, what: KILLED, set: 0 }, to, None);
        }
        for task in TASKS.into_iter().filter(|_| state.moves > 0) {
            let mut to = *state;
            let holder = state.assigned[task];
            to.moves -= 1;
            to.lane(holder).tasks[task].moved = true;
            to.assigned[task] = 1 - holder;
            to.lanes.iter_mut().for_each(|lane| lane.is_current = false);
            go(Label { who: NOBODY, what: MOVED, set: 1 << task }, to, None);
        }
    }

    fn database(&self, state: &State, at: usize, open: Open, go: Go) {
        let mut to = *state;
        to.opens[at] = None;
        if open.who != NOBODY {
            // Before COMMIT was sent the batch is simply taken again.
            let set = if open.sent { state.lanes[usize::from(open.who)].set } else { 0 };
            to.end(open.who, set);
        }
        go(Label { who: NOBODY, what: "database: rolls back (time-out, connection lost)", set: open.rows }, to, None);
        if !open.sent {
            return;
        }
        let mut to = *state;
        to.opens[at] = None;
        let mut wrong = None;
        for task in TASKS {
            let (row, part) = (&mut to.rows[task], open.parts[task]);
            if has(open.effects, task) {
                let effect = 1 << (part.at - 1);
                wrong = wrong.or((row.done & effect != 0).then_some("EFFECT TWICE"));
                row.done |= effect;
            }
            if has(open.rows, task) {
                row.redo = part;
                if self.errs(Mistake::LaneWideRedo) {
                    row.twin = if open.rows == 3 { open.parts[1 - task] } else { Part::default() };
                }
            }
        }
        if open.who != NOBODY {
            to.lane(open.who).doing = Doing::Kafka;
        }
        go(Label { who: NOBODY, what: "database: commits", set: open.rows }, to, wrong);
    }

    fn coordinator(&self, state: &State, at: usize, one: Pending, go: Go) {
        let mut to = *state;
        to.pending[at] = None;
        if one.who != NOBODY {
            to.end(one.who, state.lanes[usize::from(one.who)].set);
        }
        go(Label { who: NOBODY, what: "Kafka: aborts", set: one.tasks }, to, None);
        if !one.asked {
            return;
        }
        let mut to = *state;
        to.pending[at] = None;
        let mut wrong = None;
        for task in TASKS.into_iter().filter(|task| has(one.tasks, *task)) {
            let part = one.parts[task];
            let letter = 1 << (part.at - 1);
            if to.letters[task] & letter != 0 {
                wrong = Some("STEP 4 TWICE: a dead letter is written again");
            } else if part.former != to.logs[task].token {
                wrong = Some("CHAIN BROKEN: what Kafka got was decided on another state");
            }
            to.letters[task] |= letter;
            to.logs[task] = Log { token: part.token, at: part.at };
        }
        if one.who != NOBODY {
            let lane = to.lane(one.who);
            for task in TASKS.into_iter().filter(|task| has(lane.set, *task)) {
                let own = &mut lane.tasks[task];
                let part = own.part;
                *own = Task {
                    phase: Phase::Ready,
                    token: part.token,
                    at: part.at,
                    part: Part::default(),
                    twin: Part::default(),
                    ..*own
                };
            }
            (lane.doing, lane.set, lane.redo) = (Doing::Nothing, 0, false);
        }
        go(Label { who: NOBODY, what: "Kafka: commits", set: one.tasks }, to, wrong);
    }
}
