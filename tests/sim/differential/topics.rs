//! Topics: distinguished from others of the same name, and grown.

crate::scripts! {
    /// KIP-516: a topic that is deleted and created again is another one, and its committed offsets are gone.
    recreated_topic_has_a_new_id_and_no_offsets: "
        topic in 1
        write in:0 k=a
        set g in:0@1/token
        keep-id in
        same-id in => same
        delete-topic in
        describe in => none
        topic in 1
        same-id in => other
        ends in:0 => 0 0 0
        committed g in:0 => none
    ";
    /// Creating an existing topic changes nothing.
    creating_an_existing_topic_changes_nothing: "
        topic in 2
        keep-id in
        topic in 5
        describe in => 2 delete
        same-id in => same
    ";
    /// New partitions start empty, and the topic stays the same.
    partitions_can_be_added_to_a_topic: "
        topic in 1
        write in:0 k=a
        keep-id in
        grow in 3
        describe in => 3 delete
        same-id in => same
        ends in:0 => 0 1 1
        ends in:2 => 0 0 0
        write in:2 k=b
        see in:2 => 0:b | 1
    ";
    /// The description of a missing topic.
    missing_topic_is_described_as_none: "
        describe missing => none
    ";
    /// The changelog's cleanup policy is reported as it is.
    compacted_topic_is_described_as_compact: "
        topic log 3 compacted
        describe log => 3 compact
    ";
}
