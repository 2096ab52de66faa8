//! The question after Ctrl-C: what happens to the job that a command follows.

use crate::output::prompt;
use std::io::{self, IsTerminal as _};

/// What the user chose after Ctrl-C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// The job continues without this command.
    Leave,
    /// The job ends.
    End,
    Continue,
}

/// Words for two choices. The first letter of each is an answer too.
#[derive(Debug, Clone, Copy)]
pub struct ChoiceWords {
    pub leave: &'static str,
    pub end: &'static str,
}

impl ChoiceWords {
    /// Asks what to do. Without a terminal, the job continues without this command.
    pub fn ask(self, question: &str) -> io::Result<Interrupted> {
        if !io::stdin().is_terminal() {
            return Ok(Interrupted::Leave);
        }
        prompt(question);
        let mut answer = String::new();
        io::stdin().read_line(&mut answer)?;
        Ok(self.choice(&answer))
    }

    fn choice(self, answer: &str) -> Interrupted {
        let given = answer.trim();
        let is_for = |word: &str| given == word || given == &word[..1];
        if is_for(self.leave) {
            Interrupted::Leave
        } else if is_for(self.end) {
            Interrupted::End
        } else if answer.ends_with('\n') {
            Interrupted::Continue
        } else {
            // The end of the input, such as a closed terminal.
            Interrupted::Leave
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interruption_ends_the_job_only_on_request() {
        let words = ChoiceWords {
            leave: "detach",
            end: "cancel",
        };
        for (answer, chosen) in [
            ("d\n", Interrupted::Leave),
            ("detach\n", Interrupted::Leave),
            ("c\n", Interrupted::End),
            ("\n", Interrupted::Continue),
            ("x\n", Interrupted::Continue),
            ("", Interrupted::Leave),
        ] {
            assert_eq!(words.choice(answer), chosen, "{answer:?}");
        }
    }
}
