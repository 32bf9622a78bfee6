//! Topics: told apart from others of the same name, and grown.

crate::scripts! {
    /// KIP-516: a topic that is deleted and created again is another one, and what was committed of it is forgotten.
    a_recreated_topic_is_another_one: "
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
    /// Creating what is there changes nothing.
    a_topic_is_created_once: "
        topic in 2
        keep-id in
        topic in 5
        describe in => 2 delete
        same-id in => same
    ";
    /// New partitions begin empty, and the topic stays the same.
    a_topic_is_given_more_partitions: "
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
    /// What is said of a topic that is not there.
    a_topic_that_is_not_there_is_none: "
        describe missing => none
    ";
    /// The changelog's policy is told as it is.
    a_compacted_topic_is_told_from_others: "
        topic log 3 compacted
        describe log => 3 compact
    ";
}
