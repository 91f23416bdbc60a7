//! Two ways to claim issues in the same harness: one that only looks safe, and one that is.

#[cfg(test)]
mod naive;
#[cfg(test)]
mod reference;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sprag_github_sim::proof::Proof;

    use crate::naive::Naive;
    use crate::reference::Reference;

    /// Assigning an issue and looking whether that worked is no lock, whoever has the accounts.
    #[test]
    fn assigning_and_verifying_lets_many_in_at_once() {
        for accounts in [1, 4] {
            let patience = Duration::from_secs(600);
            let proof = Proof { accounts, patience, speed: 60, ..Proof::sized() };
            let report = proof.run(|worker| Box::new(Naive::new(worker)));
            println!("{accounts} accounts: {report}");
            assert!(report.doubles.len() > proof.issues / 2, "{accounts} accounts: {report}");
            assert!(!report.not_once().is_empty(), "{accounts} accounts: {report}");
        }
    }

    #[test]
    fn comparing_and_swapping_a_reference_lets_one_in() {
        for accounts in [1, 4] {
            let proof = Proof { accounts, ..Proof::sized() };
            let report = proof.run(|worker| Box::new(Reference::new(worker)));
            println!("{accounts} accounts: {report}");
            report.assert_safe();
            assert_eq!(report.kills, proof.kills as u64, "{report}");
        }
    }
}
