//! Clients and the listeners that they hold.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Instant;

use super::*;

/// A client without a cluster, and a weak reference to what its listener holds.
fn client() -> (Arc<Client>, Weak<()>) {
    let brokers = BTreeMap::from([("bootstrap.servers".to_owned(), "127.0.0.1:1".to_owned())]);
    let properties = Properties::consumer(&brokers, &BTreeMap::new()).unwrap();
    let held = Arc::new(());
    let listening = Arc::downgrade(&held);
    let listener = Listener::new(|_, _| {}, move || drop(Arc::clone(&held)));
    (Client::with(&properties, Some(listener)).unwrap(), listening)
}

/// What librdkafka frees of a configuration when it cannot create the client must not be freed again.
#[test]
fn client_that_cannot_be_created_leaves_the_memory_of_others_alone() {
    let given = [("bootstrap.servers", "127.0.0.1:1"), ("security.protocol", "ssl"), ("ssl.ca.pem", "no certificate")];
    let given = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let properties = Properties::consumer(&given, &BTreeMap::new()).unwrap();
    for round in 0..100 {
        let listener = Listener::new(|_, _| {}, || {});
        let error = Client::with(&properties, Some(listener)).map(drop).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        // The memory that was freed twice would be given out twice.
        let blocks: Vec<Vec<usize>> = (0..200).map(|number| vec![number; 2 + number % 20]).collect();
        let is_whole = |(number, block): (usize, &Vec<usize>)| block.iter().all(|word| *word == number);
        assert!(blocks.iter().enumerate().all(is_whole), "after {round} clients");
    }
}

#[test]
fn listener_outlives_its_client_even_without_a_thread_to_destroy_it() {
    let (client, listening) = client();
    let mut client = std::mem::ManuallyDrop::new(Arc::into_inner(client).unwrap());
    let (raw, events, role, attempts) = (client.raw, client.events, client.role, Arc::clone(&client.attempts));
    let handles = Handles { raw, events, role, _listener: client.listener.take(), attempts };
    handles.destroy_later(|_| Err(io::Error::from(io::ErrorKind::WouldBlock)));
    assert!(listening.upgrade().is_some(), "librdkafka's threads still call it");
    // The next client to be destroyed takes it along.
    drop(self::client());
    let deadline = Instant::now() + Duration::from_secs(30);
    while listening.upgrade().is_some() {
        assert!(Instant::now() < deadline, "it is never destroyed");
        thread::sleep(Duration::from_millis(5));
    }
}
