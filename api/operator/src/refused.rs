//! Why nothing was done for an object, or for a change of it: in one word, and in a sentence.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub reason: &'static str,
    pub message: String,
}

impl Refused {
    /// The spec no longer says what was carried out. `goes_on`: what does so, and as what.
    #[must_use]
    pub fn spec_changed(goes_on: &str, changeable: &str) -> Self {
        Self {
            reason: "SpecChanged",
            message: format!(
                "{goes_on}: only {changeable} can change after that; take the change back, or create another object"
            ),
        }
    }
}
