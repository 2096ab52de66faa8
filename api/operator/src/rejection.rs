//! Rejection of an object or of a change: a one-word reason and a sentence.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectRejection {
    pub reason: &'static str,
    pub message: String,
}

impl ObjectRejection {
    /// Rejection of a spec that differs from the submitted one. `goes_on` says what continues
    /// unchanged.
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
