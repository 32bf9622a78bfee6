//! The cooperative-sticky assignor: members keep what they have as far as that is fair, and a partition that moves
//! has no owner for one generation (KIP-429; `AbstractStickyAssignor`, `CooperativeStickyAssignor`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::kafka::{Partition, Subscription};

/// The partitions of each member.
pub fn assign(members: &[(Arc<str>, Subscription)], all: &[Partition]) -> Vec<(Arc<str>, Vec<Partition>)> {
    // If two claim a partition, the later generation wins (`AbstractStickyAssignor.prepopulateCurrentAssignments`).
    let mut owners: BTreeMap<&Partition, (i32, usize)> = BTreeMap::new();
    for (index, (_, subscription)) in members.iter().enumerate() {
        for partition in subscription.owned.iter().filter(|partition| all.contains(partition)) {
            let claim = (subscription.generation, index);
            owners.entry(partition).and_modify(|known| *known = (*known).max(claim)).or_insert(claim);
        }
    }
    let (least, more) = (all.len() / members.len(), all.len() % members.len());
    let mut shares: Vec<Vec<Partition>> = vec![Vec::new(); members.len()];
    let mut rest: Vec<&Partition> = Vec::new();
    let mut large = 0;
    for partition in all {
        match owners.get(partition) {
            Some((_, owner)) if shares[*owner].len() < least => shares[*owner].push(partition.clone()),
            Some((_, owner)) if shares[*owner].len() == least && large < more => {
                large += 1;
                shares[*owner].push(partition.clone());
            }
            _ => rest.push(partition),
        }
    }
    for partition in rest {
        let poorest = (0..members.len()).min_by_key(|index| shares[*index].len()).expect("there are members");
        shares[poorest].push(partition.clone());
    }
    // What another member still owns is assigned only after it has been released.
    for (index, share) in shares.iter_mut().enumerate() {
        share.retain(|partition| owners.get(partition).is_none_or(|(_, owner)| *owner == index));
    }
    members.iter().map(|(id, _)| id.clone()).zip(shares).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, generation: i32, owned: &[i32]) -> (Arc<str>, Subscription) {
        let owned = owned.iter().map(|number| Partition::new("in", *number)).collect();
        (name.into(), Subscription { topics: vec!["in".into()], owned, generation })
    }

    fn shares(members: &[(Arc<str>, Subscription)], count: i32) -> Vec<Vec<i32>> {
        let all: Vec<Partition> = (0..count).map(|number| Partition::new("in", number)).collect();
        let numbers = |share: Vec<Partition>| share.into_iter().map(|partition| partition.number).collect();
        assign(members, &all).into_iter().map(|(_, share)| numbers(share)).collect()
    }

    /// KIP-429: it is revoked first, and assigned in the next generation.
    #[test]
    fn moving_partition_has_no_owner_for_one_generation() {
        assert_eq!(shares(&[member("a", 1, &[0, 1]), member("b", -1, &[])], 2), [vec![0], vec![]]);
        assert_eq!(shares(&[member("a", 2, &[0]), member("b", 2, &[])], 2), [[0], [1]]);
    }

    #[test]
    fn members_keep_their_fair_share() {
        assert_eq!(shares(&[member("a", 1, &[1, 3]), member("b", 1, &[0, 2])], 4), [[1, 3], [0, 2]]);
        assert_eq!(shares(&[member("a", 1, &[2])], 3), [[2, 0, 1]]);
    }

    /// `AbstractStickyAssignor`: a zombie's claim from an earlier generation does not count.
    #[test]
    fn claim_of_the_later_generation_wins() {
        assert_eq!(shares(&[member("a", 3, &[0]), member("b", 5, &[0])], 2), [[1], [0]]);
    }
}
