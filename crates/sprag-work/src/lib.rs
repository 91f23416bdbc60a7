//! Work items in a git repository: each is claimed by one worker at a time, moved on when it is
//! done, and free again when its worker dies.

mod error;
mod flow;
mod item;
mod name;
mod note;

pub use error::{Error, ErrorKind, Next, Result};
pub use flow::{Flow, Place, Rules, State, Step, StepRule};
pub use item::{Item, in_order};
pub use name::ItemName;
pub use note::Note;
