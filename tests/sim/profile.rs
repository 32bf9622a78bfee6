//! What a seed is like: its size, and what goes wrong.

use ratchet::dedup::Bounds;
use ratchet::engine::limits::Limits;

use crate::database::Troubles;
use crate::gate;
use crate::input;
use crate::kafka::Protocol;
use crate::provider;
use crate::random::Random;
use crate::world::Wire;

/// What people do to the cluster. Each states the required outcome (docs/guarantees.md, "Faults").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Upheaval {
    /// The group's offsets are set back. Reading starts there; what was processed before is a duplicate.
    GroupReset,
    /// The group's offsets are set to the end of the input. Reading starts there: unread records are never forwarded,
    /// and everything else is as usual.
    GroupLatest,
    /// The group is deleted. Reading continues from the position record, never from `start`.
    GroupDeleted,
    /// The changelog loses its first records (DeleteRecords), and instances may lose their stores. A store that holds
    /// them continues; a task that would have to rebuild its store is refused.
    ChangelogTruncated,
    /// The changelog is deleted and created again. Refused.
    ChangelogRecreated,
    /// The changelog is deleted. If anything was ever committed, every start is refused and the changelog is not
    /// recreated.
    ChangelogDeleted,
    /// The changelog loses its last records, as when a replica that lacks them becomes leader. Refused if they
    /// include a committed transaction: nothing is committed after the gap, and no store is touched.
    ChangelogTailLost,
    /// The same while tasks are running.
    ChangelogTailLostAtWork,
    /// The input is deleted and created again while nobody reads. If anything of the old one was ever processed, this
    /// is refused and nothing of the new one is forwarded.
    InputRecreated,
    /// The input loses unread records (DeleteRecords, retention). Refused if they are missed: nothing is ever skipped
    /// silently.
    InputLost,
    /// Partitions are added to the input while it is read. All tasks are refused, on every instance; an instance that
    /// starts afterwards refuses to.
    InputGrown,
}

impl Upheaval {
    /// Those that affect the group and the changelog.
    pub const OF_STATE: [Self; 7] = [
        Self::GroupReset,
        Self::GroupDeleted,
        Self::ChangelogTruncated,
        Self::ChangelogRecreated,
        Self::ChangelogDeleted,
        Self::ChangelogTailLost,
        Self::ChangelogTailLostAtWork,
    ];
    /// Those that affect the input.
    pub const OF_INPUT: [Self; 4] = [Self::GroupLatest, Self::InputRecreated, Self::InputLost, Self::InputGrown];

    /// Whether something is lost for good: refusing is right then, and nothing else need happen.
    pub fn is_loss(self) -> bool {
        match self {
            Self::GroupReset | Self::GroupLatest | Self::GroupDeleted => false,
            Self::ChangelogTruncated | Self::ChangelogRecreated | Self::ChangelogDeleted => true,
            Self::ChangelogTailLost | Self::ChangelogTailLostAtWork => true,
            Self::InputRecreated | Self::InputLost | Self::InputGrown => true,
        }
    }

    /// Whether all instances are down meanwhile.
    pub fn needs_rest(self) -> bool {
        !matches!(self, Self::InputGrown | Self::ChangelogTailLostAtWork)
    }
}

/// What a seed is like.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// What is read.
    pub input: input::InputKind,
    /// Whether some records have headers, no key, or a value that cannot be read or sent.
    pub odd_records: bool,
    /// Whether there is always more to read: records come a few at a time, slowly, so that transactions stay open for
    /// long.
    pub backlogged: bool,
    pub partitions: i32,
    pub instances: usize,
    pub lanes: usize,
    pub records: u64,
    /// Maximum number of records in a transaction, about.
    pub commit_records: usize,
    /// Minimum time between commits where the input is drained, milliseconds.
    pub commit_spacing_ms: u64,
    pub crashes: u64,
    pub freezes: u64,
    pub departures: u64,
    pub moves: u64,
    /// How often the cleaner compacts a partition of the changelog.
    pub compactions: u64,
    /// How often an instance's wall clock is set.
    pub clocks: u64,
    /// How often a store's disk has a fault.
    pub disks: u64,
    /// How often the engine panics at some call, once each.
    pub panics: u64,
    /// Whether the engine panics whenever it forwards a certain record.
    pub poison: bool,
    /// How often the input loses records that were already read (retention, DeleteRecords). This must have no effect.
    pub trims: u64,
    /// A later release of the topology: instances are replaced one by one, not all of them, and perhaps back again.
    pub release: Option<Release>,
    /// Something that people do to the cluster.
    pub upheaval: Option<Upheaval>,
    /// Whether reading starts at the end of the input (`start: latest`), and the input is idle at first.
    pub latest: bool,
    /// Whether the input also has transactions, some of them aborted.
    pub transactional: bool,
    /// Whether the changelog was created by an administrator, so that the cleaner removes tombstones soon.
    pub tombstones_go: bool,
    /// How much lanes do at once, and how much history is kept.
    pub limits: Limits,
    /// The transaction protocol: Kafka before 4.0 has the first, later releases have the second.
    pub protocol: Protocol,
    /// Whether brokers name the latest timestamp in a partition (`ListOffsets`, version 7).
    pub names_latest_time: bool,
    pub wire: Wire,
    /// What may go wrong at any statement to the database.
    pub database: Troubles,
    /// How often something happens to the database that loses nothing.
    pub blows: u64,
    /// Whether the database once goes back in time.
    pub goes_back: bool,
    /// What may go wrong at any request to the provider.
    pub provider: provider::Troubles,
    /// How often the provider is down.
    pub outages: u64,
    /// How many records in a thousand ask the provider for something else than others of their thing and version.
    pub conflicts: u64,
    /// What may go wrong with the gate.
    pub gate: gate::Troubles,
    /// How many versions count as one: the more, the more records are duplicates, and the longer after the first.
    pub coarse: u64,
    /// How often the cleaner compacts a partition of the input, whether its records are settled or not.
    pub vanishings: u64,
    /// How many commands are given.
    pub commands: u64,
}

/// How the other release of the topology differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// In its retention, milliseconds.
    Retention(i64),
    /// In its rules: it has no versions. Its instances are there for a while only, and are refused once the others
    /// have begun.
    Rules,
}

/// Bounds on the lanes' work, small enough to be hit; bounds on history are as usual.
fn limits(random: &mut Random) -> Limits {
    let mut one_of = |all: [usize; 4]| all[random.below(4) as usize];
    let usual = Limits::DEFAULT;
    let poll_records_max = one_of([1, 5, usual.poll_records_max, usual.poll_records_max]);
    let loads_max = one_of([1, 2, usual.loads_max, usual.loads_max]);
    Limits {
        poll_records_max,
        loads_max,
        sweep_keys_max: one_of([1, 2, 5, usual.sweep_keys_max]),
        isolated_max: loads_max,
        isolated_records_max: one_of([1, 2, 5, usual.isolated_records_max]),
        window_records_max: one_of([2, 5, 20, usual.window_records_max]),
        lane_panics_max: one_of([1, 2, 5, 5]) as u32,
        // No simulated broker returns a response older than what it knows: nothing becomes right only by querying
        // again.
        doubts_max: one_of([0, 0, 1, usual.doubts_max as usize]) as u32,
        kept: usual.kept,
    }
}

/// Draws a profile.
pub type Draw = fn(&mut Random) -> Profile;

/// All profiles by name.
pub const PROFILES: [(&str, Draw); 24] = [
    ("calm", Profile::calm),
    ("falling", Profile::falling),
    ("wild", Profile::wild),
    ("stormy", Profile::stormy),
    ("restless", Profile::restless),
    ("doubtful", Profile::doubtful),
    ("odd", Profile::odd),
    ("sick", Profile::sick),
    ("upset", Profile::upset),
    ("forgetful", Profile::forgetful),
    ("epochal", Profile::epochal),
    ("changing", Profile::changing),
    ("uprooted", Profile::uprooted),
    ("swept", Profile::swept),
    ("late", Profile::late),
    ("sunk", Profile::sunk),
    ("shared", Profile::shared),
    ("returned", Profile::returned),
    ("gated", Profile::gated),
    ("called", Profile::called),
    ("called_odd", Profile::called_odd),
    ("called_unsure", Profile::called_unsure),
    ("handled", Profile::handled),
    ("handled_unsure", Profile::handled_unsure),
];

impl Profile {
    /// Nothing goes wrong.
    pub fn calm(random: &mut Random) -> Self {
        // From a separate generator, so that other draws stay the same.
        let mut separate = Random::new(!random.clone().next());
        let commit_records = [1, 7, 100, 100][separate.below(4) as usize];
        let limits = limits(&mut separate);
        let commit_spacing_ms = [0, 5, 50, 200][separate.below(4) as usize];
        let names_latest_time = separate.permille(600);
        Self {
            commit_records,
            commit_spacing_ms,
            limits,
            input: input::InputKind::Versions,
            odd_records: true,
            backlogged: false,
            partitions: random.between(2, 4),
            instances: 2,
            lanes: random.between(1, 2) as usize,
            records: random.between(50, 300),
            crashes: 0,
            freezes: 0,
            departures: 0,
            moves: 0,
            compactions: 0,
            clocks: 0,
            disks: 0,
            panics: 0,
            poison: false,
            trims: 0,
            release: None,
            upheaval: None,
            latest: false,
            transactional: false,
            tombstones_go: false,
            protocol: Protocol::V1,
            names_latest_time,
            wire: Wire::default(),
            database: Troubles::default(),
            blows: 0,
            goes_back: false,
            provider: provider::Troubles::default(),
            outages: 0,
            conflicts: 0,
            gate: gate::Troubles::default(),
            coarse: 1,
            vanishings: 0,
            commands: 0,
        }
    }

    /// Whether anything goes wrong.
    pub fn is_troubled(&self) -> bool {
        let Wire { request_lost, response_lost, late, slow, silenced } = self.wire;
        self.crashes + self.freezes + self.departures + self.moves + self.compactions + self.clocks + self.disks > 0
            || self.upheaval.is_some()
            || self.trims > 0
            || self.panics > 0
            || self.release.is_some()
            || self.poison
            || self.input.sink().is_some()
            || self.input.calls().is_some()
            || self.gate.outages + self.gate.flushes > 0
            || request_lost + response_lost + late + slow + silenced > 0
    }

    /// Whether nothing dies, freezes or gets lost, so that instances are only asked to leave.
    pub fn is_undisturbed(&self) -> bool {
        let Wire { request_lost, response_lost, late, slow, silenced } = self.wire;
        self.crashes + self.freezes + self.moves + self.clocks + self.disks + self.panics + self.trims == 0
            && self.upheaval.is_none()
            && request_lost + response_lost + late + slow + silenced == 0
    }

    /// Crashes, freezes and rebalances; the wire is fine.
    pub fn falling(random: &mut Random) -> Self {
        let (crashes, freezes, departures) = (random.below(4), random.below(4), random.below(3));
        let protocol = if random.permille(500) { Protocol::V2 } else { Protocol::V1 };
        // From a separate generator, so that other draws stay the same.
        let mut separate = Random::new(random.clone().next());
        let backlogged = separate.permille(400);
        let panics = if separate.permille(500) { separate.below(3) } else { 0 };
        // Alone, so that a task stops for this record and for no other reason.
        let poison = panics == 0 && separate.permille(100);
        Self { backlogged, crashes, freezes, departures, panics, poison, protocol, ..Self::calm(random) }
    }

    /// As `falling`, plus faults on the wire.
    pub fn wild(random: &mut Random) -> Self {
        let moves = random.below(4);
        let mut upto = |most: u64| if random.permille(500) { random.below(most) } else { 0 };
        let wire =
            Wire { request_lost: upto(20), response_lost: upto(20), late: upto(10), slow: upto(30), ..Wire::default() };
        Self { moves, wire, ..Self::falling(random) }
    }

    /// As `wild`, plus the log cleaner, clocks that jump, and transactions in the input.
    pub fn odd(random: &mut Random) -> Self {
        let (compactions, clocks, transactional) = (random.below(12), random.below(3), random.permille(700));
        Self { compactions, clocks, transactional, ..Self::wild(random) }
    }

    /// As `wild`, plus disks that are full, damaged or lost, stores put back from old copies, and stores swapped.
    pub fn sick(random: &mut Random) -> Self {
        let disks = random.between(1, 8);
        Self { disks, ..Self::wild(random) }
    }

    /// As `sick`, plus groups and changelogs that people change.
    pub fn upset(random: &mut Random) -> Self {
        let upheaval = Upheaval::OF_STATE[random.below(Upheaval::OF_STATE.len() as u64) as usize];
        Self { upheaval: Some(upheaval), poison: false, ..Self::sick(random) }
    }

    /// As `wild`, plus inputs that people change: trimmed, lost, grown, recreated, or skipped on purpose.
    pub fn uprooted(random: &mut Random) -> Self {
        let trims = random.below(5);
        let upheaval = random.permille(800).then(|| Upheaval::OF_INPUT[random.below(4) as usize]);
        let transactional = random.permille(500);
        // From a separate generator, so that other draws stay the same. Skipping records leaves a second range.
        let is_bounded = Random::new(random.clone().next()).permille(400) && upheaval == Some(Upheaval::GroupLatest);
        let drawn = Self { trims, upheaval, transactional, poison: false, ..Self::wild(random) };
        let ranges_max = if is_bounded { 1 } else { Bounds::DEFAULT.ranges_max };
        drawn.keeping(Bounds { ranges_max, ..Bounds::DEFAULT })
    }

    /// As `odd`, with messages that expire soon. To a clock that is behind by more than a tenth of the retention,
    /// every record is from the future.
    pub fn forgetful(random: &mut Random) -> Self {
        // From a separate generator, so that other draws stay the same.
        let mut separate = Random::new(random.clone().next());
        let other = [200, 700, 2_000, 60_000][separate.below(4) as usize];
        let release = separate.permille(500).then_some(Release::Retention(other));
        let drawn = Self::odd(random);
        // An owner with a longer retention may drop, and so pass, the record at which another one has stopped.
        let poison = drawn.poison && release.is_none();
        Self { input: input::InputKind::Messages, release, poison, ..drawn }
    }

    /// As `wild`, with versions that restart in each epoch.
    pub fn epochal(random: &mut Random) -> Self {
        // Drawn separate: all else is as it would be.
        let mut separate = Random::new(random.clone().next());
        let drawn = Self { input: input::InputKind::Epochs, ..Self::wild(random) };
        match separate.below(4) {
            0 => drawn.keeping(Bounds { scopes_max: separate.between(1, 4) as usize, ..Bounds::DEFAULT }),
            1 => drawn.keeping(Bounds { segments_max: separate.between(1, 6) as usize, ..Bounds::DEFAULT }),
            _ => drawn,
        }
    }

    /// The same with other bounds on history. A task that hits one stops, and rightly so; nothing else may stop any.
    fn keeping(self, kept: Bounds) -> Self {
        let poison = self.poison && kept == Bounds::DEFAULT;
        Self { limits: Limits { kept, ..self.limits }, poison, ..self }
    }

    /// As `odd`, with changes to a table's rows.
    pub fn changing(random: &mut Random) -> Self {
        Self { input: input::InputKind::Changes, ..Self::odd(random) }
    }

    /// As `sick`, with messages that expire soon and whose tombstones are compacted away, on disks that fall back: a
    /// store that may have missed tombstones is rebuilt.
    pub fn swept(random: &mut Random) -> Self {
        let compactions = random.between(6, 30);
        Self { input: input::InputKind::Messages, tombstones_go: true, compactions, ..Self::sick(random) }
    }

    /// As `wild`, with inputs that are read from their end, and groups deleted before any record arrives.
    pub fn late(random: &mut Random) -> Self {
        let upheaval = random.permille(800).then_some(Upheaval::GroupDeleted);
        Self { latest: true, upheaval, ..Self::wild(random) }
    }

    /// As `wild`, into a database that decides by the tasks' own positions: with its connections lost, its answers
    /// lost, its server down, or back in time; or with an upheaval of group or changelog instead.
    pub fn sunk(random: &mut Random) -> Self {
        let (compactions, disks) = (random.below(6), random.below(3));
        let what = random.below(10);
        let upheaval = (what < 3).then(|| Upheaval::OF_STATE[random.below(Upheaval::OF_STATE.len() as u64) as usize]);
        let forgets = random.permille(400);
        let input = if forgets { input::InputKind::SunkMessages } else { input::InputKind::Sunk };
        let drawn = Self { compactions, disks, upheaval, goes_back: what == 3, input, ..Self::wild(random) };
        drawn.into_database(random)
    }

    /// As `odd`, into a database with an inbox.
    pub fn shared(random: &mut Random) -> Self {
        Self { input: input::InputKind::Shared, ..Self::odd(random) }.into_database(random)
    }

    /// As `odd`, behind a gate: with its answers lost or late, its server down, or empty again.
    pub fn gated(random: &mut Random) -> Self {
        let passes = random.permille(300);
        let input = if passes { input::InputKind::GatedPass } else { input::InputKind::Gated };
        let drawn = Self { input, disks: random.below(3), poison: false, ..Self::odd(random) };
        Self { gate: gate::Troubles::drawn(random), ..drawn }
    }

    /// As `sick`, into a database whose answers go to a topic.
    pub fn returned(random: &mut Random) -> Self {
        let reset = random.permille(300).then_some(Upheaval::GroupReset);
        Self { input: input::InputKind::Returned, upheaval: reset, ..Self::sick(random) }.into_database(random)
    }

    /// As `wild`, for a provider: with keys or without, and requests that get lost, come late, or find it down.
    pub fn called(random: &mut Random) -> Self {
        let input = input::InputKind::Called(input::Calls::USUAL[random.below(4) as usize]);
        let (compactions, disks) = (random.below(6), random.below(3));
        let upheaval = random.permille(250).then_some(Upheaval::GroupReset);
        let drawn = Self { input, compactions, disks, upheaval, poison: false, ..Self::wild(random) };
        // From a separate generator, so that other draws stay the same.
        let mut separate = Random::new(random.clone().next());
        let commands = if separate.permille(500) { separate.between(1, 12) } else { 0 };
        let drawn = Self { commands, ..drawn };
        Self { provider: provider::Troubles::drawn(random), outages: random.below(3), ..drawn }
    }

    /// As `odd`, for a provider, with all that `called` does not have: other shapes of records, duplicates that ask for
    /// something else, calls that are given up soon or not at all, tasks that stop at calls, clocks that jump, and
    /// records that vanish from the input.
    pub fn called_odd(random: &mut Random) -> Self {
        let all = input::Calls::ODD;
        let calls = all[random.below(all.len() as u64) as usize];
        let (disks, trims) = (random.below(3), random.below(3));
        // Where all that is remembered follows from what is in the cluster, nothing may be missed.
        let may_miss = calls.shape == input::Shape::Versions && calls.ends.gives_up();
        let vanishings = if may_miss { random.below(4) } else { 0 };
        let upheaval = match random.below(100) {
            0..15 if may_miss => Some(Upheaval::GroupLatest),
            15..20 if may_miss => Some(Upheaval::InputRecreated),
            20..35 => Some(Upheaval::GroupReset),
            35..40 => Some(Upheaval::GroupDeleted),
            _ => None,
        };
        let conflicts = if random.permille(700) { random.below(300) } else { 0 };
        let input = input::InputKind::Called(calls);
        let drawn = Self { input, disks, trims, upheaval, conflicts, vanishings, poison: false, ..Self::odd(random) };
        let mut provider = provider::Troubles::drawn(random);
        if calls.ends == input::Ends::Soon && random.permille(400) {
            provider.throttled = random.between(200, 700);
        }
        Self { provider, outages: random.below(3), ..drawn }
    }

    /// As `odd`, for a handler: with keys or without, given up soon, late or not at all; with commands, duplicates that ask
    /// for something else, and records that vanish from the input. In some seeds nothing but the provider is at fault, and
    /// instances only come and go.
    pub fn handled(random: &mut Random) -> Self {
        let all = input::Calls::HANDLED;
        let calls = all[random.below(all.len() as u64) as usize];
        let (disks, trims) = (random.below(2), random.below(3));
        let may_miss = calls.shape == input::Shape::Versions && calls.ends.gives_up();
        let vanishings = if may_miss { random.below(3) } else { 0 };
        let upheaval = match random.below(100) {
            0..8 if may_miss => Some(Upheaval::GroupLatest),
            8..12 if may_miss => Some(Upheaval::InputRecreated),
            12..25 => Some(Upheaval::GroupReset),
            25..30 => Some(Upheaval::GroupDeleted),
            _ => None,
        };
        let conflicts = if random.permille(400) { random.below(200) } else { 0 };
        let commands = if calls.ends.gives_up() && random.permille(400) { random.between(1, 12) } else { 0 };
        let input = input::InputKind::Called(calls);
        let drawn = Self { input, disks, trims, upheaval, conflicts, commands, vanishings, ..Self::odd(random) };
        let mut provider = provider::Troubles::drawn(random).of_handlers(random);
        if calls.ends == input::Ends::Soon && random.permille(400) {
            provider.throttled = random.between(100, 400);
        }
        let coarse = [1, 12, 40, 60][random.below(4) as usize];
        let drawn = Self { provider, poison: false, outages: random.below(3), coarse, ..drawn };
        if random.permille(200) { drawn.undisturbed(random) } else { drawn }
    }

    /// As `called_odd`, in one of three ways. Messages are forgotten while clocks jump and tasks change hands. Calls
    /// with a key are soon given up, and many are in doubt; some providers remember nothing under a key when they fail
    /// after they have acted. Or calls are reserved and often not sent while tasks change hands, and the group is
    /// reset.
    pub fn called_unsure(random: &mut Random) -> Self {
        let (coarse, departures) = ([3, 6, 12][random.below(3) as usize], random.between(3, 7));
        let unsure = provider::Troubles::unsure(random);
        let (way, throttled, outages, clocks) = (
            [0, 1, 1, 2, 2][random.below(5) as usize],
            random.between(200, 500),
            random.below(3),
            random.between(3, 9),
        );
        let calls = match way {
            0 => input::Calls::MESSAGES[random.below(2) as usize],
            1 => input::Calls::GRANTED_SOON,
            _ => input::Calls::RESERVED_SOON,
        };
        let input = input::InputKind::Called(calls);
        let drawn =
            Self { input, coarse, upheaval: None, vanishings: 0, trims: 0, conflicts: 0, ..Self::called_odd(random) };
        match way {
            0 => Self { clocks, departures, provider: unsure, ..drawn },
            1 => {
                // From a separate generator, so that other draws stay the same.
                let forgets = Random::new(random.clone().next()).permille(500);
                Self { provider: provider::Troubles { forgets, ..unsure }, ..drawn }
            }
            _ => {
                let provider = provider::Troubles { throttled, ..provider::Troubles::default() };
                let upheaval = Some(Upheaval::GroupReset);
                Self { provider, departures, outages, upheaval, freezes: 0, records: 300, ..drawn }
            }
        }
    }

    /// As `handled`, with calls that are soon given up, and many in doubt.
    pub fn handled_unsure(random: &mut Random) -> Self {
        let all = input::Calls::HANDLED_SOON;
        let input = input::InputKind::Called(all[random.below(all.len() as u64) as usize]);
        let coarse = [12, 40, 60][random.below(3) as usize];
        let mut provider = provider::Troubles::unsure(random).of_handlers(random);
        // Many attempts that have certainly not begun.
        if random.permille(400) {
            provider.throttled = random.between(200, 600);
        }
        let drawn = Self::handled(random);
        let upheaval = drawn.upheaval.filter(|upheaval| *upheaval == Upheaval::GroupReset);
        Self { input, provider, coarse, upheaval, vanishings: 0, conflicts: 0, ..drawn }
    }

    /// The same where nothing dies, freezes or gets lost, and instances only come and go.
    fn undisturbed(self, random: &mut Random) -> Self {
        let departures = random.between(1, 4);
        let drawn = Self { crashes: 0, freezes: 0, moves: 0, clocks: 0, disks: 0, panics: 0, ..self };
        Self { departures, upheaval: None, trims: 0, vanishings: 0, wire: Wire::default(), ..drawn }
    }

    fn into_database(self, random: &mut Random) -> Self {
        Self { database: Troubles::drawn(random), blows: random.below(4), poison: false, ..self }
    }

    /// The profile with this name.
    pub fn named(name: &str) -> Option<Draw> {
        PROFILES.into_iter().find(|(known, _)| *known == name).map(|(_, draw)| draw)
    }

    /// As `wild`, but the wire is often down, sometimes for seconds for one process.
    pub fn stormy(random: &mut Random) -> Self {
        // From a separate generator, so that other draws stay the same.
        let release = Random::new(random.clone().next()).permille(400).then_some(Release::Rules);
        let mut upto = |most: u64| random.below(most);
        let wire = Wire {
            request_lost: upto(60),
            response_lost: upto(60),
            late: upto(120),
            slow: upto(100),
            silenced: upto(30),
        };
        Self { wire, release, ..Self::wild(random) }
    }

    /// As `stormy`, but instances freeze again and again, and requests arrive late: others own the tasks by then.
    pub fn restless(random: &mut Random) -> Self {
        let freezes = random.between(5, 9);
        let drawn = Self { instances: 3, freezes, commit_records: 7, commit_spacing_ms: 200, ..Self::stormy(random) };
        Self { crashes: 0, departures: 0, backlogged: false, ..drawn }.of_late_requests()
    }

    /// As `stormy`, but only the network is at fault: requests arrive late, and responses are lost.
    pub fn doubtful(random: &mut Random) -> Self {
        let drawn = Self { backlogged: true, commit_records: 7, ..Self::stormy(random) };
        Self { crashes: 0, freezes: 0, departures: 0, ..drawn }.of_late_requests()
    }

    /// The same with many late requests, many lost responses, and brokers with transactions of the first version: they take
    /// a late request for one of the next transaction.
    fn of_late_requests(self) -> Self {
        let wire = Wire { request_lost: 0, response_lost: 50, late: 200, slow: 100, silenced: 0 };
        Self { wire, protocol: Protocol::V1, moves: 0, panics: 0, poison: false, release: None, ..self }
    }
}

#[cfg(test)]
mod tests;
