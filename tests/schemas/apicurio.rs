//! Goal: schemas are found by the ids that Apicurio's serializers write: numbers of eight bytes, and ids in headers.

use super::payments::{FORWARDED, Payments, values_of};
use crate::cluster::Fresh;
use crate::job::Job;
use crate::operator::Operator;
use crate::schema_registry::{Ids, Server};
use crate::until::DEADLINE;

/// Makes a record of a bare value and the ids of its schema.
type Framing = fn(&[u8], Ids, Fresh) -> Fresh;

fn eight_bytes(id: u64, bare: &[u8]) -> Vec<u8> {
    [&[0], &id.to_be_bytes()[..], bare].concat()
}

/// Settings of the registry besides its address, each with the framing that needs them.
const FRAMINGS: [(&str, Framing); 4] = [
    (", id_bytes: 8, ids_of: versions", |bare, ids, record| Fresh {
        value: Some(eight_bytes(ids.global, bare)),
        ..record
    }),
    (", id_bytes: 8", |bare, ids, record| Fresh { value: Some(eight_bytes(ids.content, bare)), ..record }),
    ("", |bare, ids, record| {
        let record = record.header("apicurio.value.globalId", &ids.global.to_be_bytes());
        Fresh { value: Some(bare.to_vec()), ..record }
    }),
    ("", |bare, ids, record| {
        let record = record.header("apicurio.value.contentId", &ids.content.to_be_bytes());
        Fresh { value: Some(bare.to_vec()), ..record }
    }),
];

#[test]
fn schemas_are_found_by_apicurios_ids() {
    let registry = Server::shared();
    let payments = Payments::of("avro");
    for (number, (settings, framing)) in FRAMINGS.into_iter().enumerate() {
        let mut job: Job = payments.job(&format!("apicurio-{number}"), &registry.own_url());
        let line = job.worker.pop().unwrap();
        job.worker.push(line.replace("\"}", &format!("\"{settings}}}")));
        payments.register(registry, &job.input);
        let ids = [1, 2].map(|version| registry.ids(&format!("{}-value", job.input), version));
        // The values name versions 1 and 2, in place of the ids of schemas.
        let sent: Vec<Fresh> = payments
            .values([1, 2])
            .into_iter()
            .enumerate()
            .map(|(at, value)| {
                let ids = ids[usize::from(value[4]) - 1];
                framing(&value[5..], ids, Fresh::new(0, &format!("key-{at}"), Vec::new()))
            })
            .collect();
        let values: Vec<Vec<u8>> = sent.iter().map(|record| record.value.clone().unwrap()).collect();
        job.send(sent);
        let mut operator = Operator::start(&job, "a");
        job.await_drained(DEADLINE);
        operator.stop();
        assert_eq!(values_of(job.output()), FORWARDED.map(|at| values[at].clone()), "framing {number}");
    }
}
