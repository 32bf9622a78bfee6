//! The two ways from `debezium-postgres@1` to `@2`, step by step as on the preset's page, while the database keeps
//! changing.

use super::*;

/// The topology before: its user's own, which drops rows that waited for their keys.
const FORMER: &str = "orders-by-1";
/// The topology after.
const NEW: &str = "orders-by-2";
const PRESET: &str = "debezium-postgres@1";

/// A topology over both tables.
fn topology(name: &str, preset: &str, input: &str, output: &str) -> String {
    let topics = "topics: [shop.public.orders, shop.public.order_lines]";
    format!("name: {name}\npreset: {preset}\ninput: {{{topics}{input}}}\noutput: {{topic: {output}}}\n")
}

/// The former output: a topic for each table.
const BEFORE: &str = "'{topic}.clean'";

impl Scenario<'_> {
    /// Into a new output, from an input that does not reach back to the start.
    pub fn change_to_2_with_a_new_output(mut self) {
        let mut former = self.drop_good_changes();
        // Removes what the first snapshot read, and some changes.
        self.await_drained(FORMER, &mut former);
        for (topic, partition) in self.partitions() {
            let end = self.kafka.bounds(&topic, partition).end;
            self.kafka.delete_records(&topic, partition, end / 2);
        }

        self.announce("1. create the new output topic, and start a topology of a new name with @2 and that output");
        for table in &TABLES {
            self.kafka.create(&format!("{}.new", self.database.topic(table)), PARTITIONS, &[]);
        }
        let mut operator = self.operate(NEW, "debezium-postgres@2", "", "'{topic}.new'");
        self.work(Kinds::All);
        self.announce(
            "2. the input does not reach back to the first snapshot: let the connector take an incremental snapshot",
        );
        self.await_delivered();
        self.await_drained(NEW, &mut operator);
        self.output = "new";
        assert!(!self.missing(&TABLES[0]).is_empty(), "the input reaches back to the start after all");
        self.take_an_incremental_snapshot();
        self.work(Kinds::All);
        self.await_delivered();

        self.announce(
            "3. when it has caught up, move the readers; stop the former topology, remove its group and changelog",
        );
        self.await_drained(NEW, &mut operator);
        former.stop();
        self.kafka.delete_group(&group(FORMER));
        for table in &TABLES {
            self.kafka.delete(&format!("ratchet.{FORMER}.{}.changelog", self.database.topic(table)));
        }
        self.work(Kinds::All);
        self.end_right(NEW, &mut operator);
    }

    /// Into the same output, whose readers never see a row go back.
    pub fn change_to_2_with_the_same_output(mut self) {
        let mut former = self.drop_good_changes();

        self.announce("1. stop the connector cleanly");
        self.connect.stop();
        self.work(Kinds::All);
        self.announce("2. wait until the former topology has no lag, and stop it for good");
        self.await_drained(FORMER, &mut former);
        former.stop();
        self.announce("3. start the new topology with latest and append; wait until it is ready; start the connector");
        let output = format!("{BEFORE}, existing: append");
        let mut operator = self.operate(NEW, "debezium-postgres@2", ", start: latest", &output);
        operator.await_ready();
        self.connect.start();
        self.work(Kinds::All);
        self.await_delivered();
        self.announce("4. let the connector take an incremental snapshot");
        self.take_an_incremental_snapshot();
        self.work(Kinds::All);
        self.end_right(NEW, &mut operator);
    }

    /// Runs the former topology until rows are missing in its output, and checks that its name accepts no other rules.
    fn drop_good_changes(&mut self) -> Operator {
        self.work(Kinds::All);
        let mut former = self.operate(FORMER, PRESET, "", BEFORE);
        self.announce("by debezium-postgres@1 good changes are dropped");
        self.connect.start();
        // Once this is delivered, the first snapshot has been taken.
        self.await_delivered();
        self.work(Kinds::All);
        self.await_delivered();
        self.await_drained(FORMER, &mut former);
        assert!(former.printed().contains("`debezium-postgres@1` drops good changes"), "{}", former.printed());
        let missing = self.missing(&TABLES[0]);
        println!("{} rows are missing or old, the first: {:?}", missing.len(), missing.first());
        assert!(!missing.is_empty(), "nothing was dropped");

        former.stop();
        former.write(&topology(FORMER, "debezium-postgres@2", "", BEFORE));
        former.restart();
        assert_eq!(former.await_exit().code(), Some(2), "{}", former.printed());
        assert!(former.printed().contains("under other rules"), "{}", former.printed());
        former.write(&topology(FORMER, PRESET, "", BEFORE));
        former.restart();
        former
    }

    /// Starts a topology of this name.
    fn operate(&self, name: &str, preset: &str, input: &str, output: &str) -> Operator {
        let folder = format!("{name}-{}", self.database.name());
        Operator::of(&folder, &topology(name, preset, input, output), self.kafka.brokers())
    }

    /// The differences between a table and its output's.
    fn missing(&mut self, table: &Table) -> Vec<String> {
        differences(&self.source(table), &Replica::of(&self.read_output(table)).rows)
    }

    /// Has the connector read all rows of both tables beside the stream, and waits for the reads.
    fn take_an_incremental_snapshot(&mut self) {
        for (table, arrivals) in TABLES.iter().zip(&mut self.arrivals) {
            arrivals.look();
            let reads = arrivals.reads;
            let rows = self.session.run(&format!("select count(*) from {};", table.name));
            let rows: usize = rows[0].parse().expect("a count is a number");
            let signal = format!(
                "insert into signals values ('all-{}', 'execute-snapshot', \
                 '{{\"data-collections\": [\"public.{}\"], \"type\": \"incremental\"}}');",
                table.name, table.name
            );
            self.session.run(&signal);
            within(DELIVERY, &format!("{rows} reads of {}", table.name), || {
                self.connect.assert_running();
                arrivals.look();
                (arrivals.reads >= reads + rows).then_some(())
            });
        }
    }
}
