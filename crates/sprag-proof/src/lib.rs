//! Proof that the lock machine and the client keep their promises.

pub mod simulation;
