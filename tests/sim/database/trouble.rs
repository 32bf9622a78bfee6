//! What goes wrong with a database, apart from what its clients do.

use crate::kafka::{MS, SECOND, Time};
use crate::random::Random;
use crate::world::Wire;

use super::Server;

/// What may go wrong at any statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    /// What happens to statements and their answers on the way.
    pub link: Wire,
    /// How many statements in a thousand fail to be serialized.
    pub serialization: u64,
    /// Of a thousand processes that die, how many the server does not learn of.
    pub vanishing: u64,
    /// How long a connection may be idle in a transaction; ten seconds if it is not set.
    pub idle_max: Option<Time>,
}

impl Troubles {
    /// Draws some.
    pub fn drawn(random: &mut Random) -> Self {
        let mut upto = |most: u64| if random.permille(600) { random.below(most) } else { 0 };
        let link = Wire {
            request_lost: upto(20),
            response_lost: upto(25),
            late: upto(20),
            slow: upto(20),
            silenced: upto(10),
        };
        let (serialization, vanishing) = (upto(20), upto(600));
        let idle_max = Some(random.between(SECOND, 10 * SECOND));
        Self { link, serialization, vanishing, idle_max }
    }

    /// Nothing goes wrong any more.
    pub fn calm_down(&mut self) {
        *self = Self { idle_max: self.idle_max, ..Self::default() };
    }
}

/// What happens to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blow {
    /// The server is stopped, or killed, for this time. What was committed stays.
    Down(Time),
    /// A table is missing for this time.
    TableMissing(Time),
    /// A replica takes over that lacks what was committed within this time.
    Failover(Time),
    /// A backup of this age is restored.
    Restored(Time),
}

impl Blow {
    /// One that loses nothing.
    pub fn harmless(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::TableMissing(random.between(10 * MS, 3 * SECOND)),
            1 => Self::Down(random.between(MS, 50 * MS)),
            _ => Self::Down(random.between(MS, 3 * SECOND)),
        }
    }

    /// One that loses what was committed.
    pub fn losing(random: &mut Random) -> Self {
        match random.below(2) {
            0 => Self::Failover(random.between(MS, 300 * MS)),
            _ => Self::Restored(random.between(100 * MS, 4 * SECOND)),
        }
    }

    /// Whether what was committed is lost.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::Failover(_) | Self::Restored(_))
    }

    /// Its name among the situations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down(_) => "the database was down",
            Self::TableMissing(_) => "a table of the database was missing",
            Self::Failover(_) => "the database failed over and lost its last commits",
            Self::Restored(_) => "an older backup of the database was restored",
        }
    }
}

impl Server {
    /// Strikes, `pause` after which it can be reached again.
    pub fn strike(&mut self, blow: Blow, now: Time, pause: Time) {
        self.advance(now);
        match blow {
            Blow::Down(length) => self.stop(now + length),
            Blow::TableMissing(length) => self.lose_table(now + length),
            Blow::Failover(age) | Blow::Restored(age) => {
                self.stop(now + pause);
                self.go_back(now.saturating_sub(age));
            }
        }
    }
}
