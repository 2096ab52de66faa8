//! The events of a YAML text, one at a time. `serde_norway` uses the same parser but reads a whole
//! document before it returns.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use unsafe_libyaml_norway as unsafe_yaml;

/// An event of the parser.
#[derive(Debug, PartialEq, Eq)]
pub enum YamlEvent {
    DocumentStart,
    /// A scalar, or the start of a sequence or mapping.
    Node {
        anchor: Option<Vec<u8>>,
        /// Bytes of its text and its tag.
        bytes: usize,
        /// Whether it is the start of a sequence or mapping, which a later `End` closes.
        is_container: bool,
    },
    /// End of a sequence or mapping.
    End,
    Alias(Vec<u8>),
    /// Events that do not affect the size.
    Other,
}

/// Parser of a text. It is boxed, because it contains a pointer to itself and must not move.
pub struct YamlEventParser<'a> {
    parser: Box<MaybeUninit<unsafe_yaml::yaml_parser_t>>,
    text: PhantomData<&'a str>,
}

impl<'a> YamlEventParser<'a> {
    pub fn new(text: &'a str) -> Self {
        let mut parser = Box::new(MaybeUninit::<unsafe_yaml::yaml_parser_t>::uninit());
        // SAFETY: the parser is initialised before anything else uses it, and `text` outlives it.
        unsafe {
            let parser = parser.as_mut_ptr();
            let is_initialised = unsafe_yaml::yaml_parser_initialize(parser).ok;
            assert!(is_initialised, "the parser's initial buffers are allocated");
            unsafe_yaml::yaml_parser_set_encoding(parser, unsafe_yaml::YAML_UTF8_ENCODING);
            unsafe_yaml::yaml_parser_set_input_string(parser, text.as_ptr(), text.len() as u64);
        }
        Self {
            parser,
            text: PhantomData,
        }
    }

    /// Returns the next event and its line, counted from 1. `None` at the end of the text, or at
    /// its first error.
    pub fn next(&mut self) -> Option<(YamlEvent, usize)> {
        let mut event = MaybeUninit::<unsafe_yaml::yaml_event_t>::uninit();
        // SAFETY: the parser is initialised; the event is read only if the call has written it, and
        // is deleted once.
        unsafe {
            if !unsafe_yaml::yaml_parser_parse(self.parser.as_mut_ptr(), event.as_mut_ptr()).ok {
                return None;
            }
            let mut event = event.assume_init();
            let read = match event.type_ {
                unsafe_yaml::YAML_STREAM_END_EVENT | unsafe_yaml::YAML_NO_EVENT => None,
                _ => Some(converted(&event)),
            };
            let line = usize::try_from(event.start_mark.line).unwrap_or(usize::MAX - 1) + 1;
            unsafe_yaml::yaml_event_delete(&raw mut event);
            read.map(|event| (event, line))
        }
    }
}

impl Drop for YamlEventParser<'_> {
    fn drop(&mut self) {
        // SAFETY: the parser is initialised, and is not used after this.
        unsafe { unsafe_yaml::yaml_parser_delete(self.parser.as_mut_ptr()) }
    }
}

/// Converts an event.
///
/// # Safety
/// The parser has written `event`, and it is not deleted.
unsafe fn converted(event: &unsafe_yaml::yaml_event_t) -> YamlEvent {
    // SAFETY: the type of an event says which of its data are set; texts end with a NUL or are
    // null.
    unsafe {
        let node = |anchor, tag, bytes, is_container| YamlEvent::Node {
            anchor: text(anchor),
            bytes: bytes + text(tag).map_or(0, |tag| tag.len()),
            is_container,
        };
        match event.type_ {
            unsafe_yaml::YAML_DOCUMENT_START_EVENT => YamlEvent::DocumentStart,
            unsafe_yaml::YAML_ALIAS_EVENT => {
                YamlEvent::Alias(text(event.data.alias.anchor).unwrap_or_default())
            }
            unsafe_yaml::YAML_SCALAR_EVENT => {
                let scalar = event.data.scalar;
                let bytes = usize::try_from(scalar.length).unwrap_or(usize::MAX / 2);
                node(scalar.anchor, scalar.tag, bytes, false)
            }
            unsafe_yaml::YAML_SEQUENCE_START_EVENT => {
                let start = event.data.sequence_start;
                node(start.anchor, start.tag, 0, true)
            }
            unsafe_yaml::YAML_MAPPING_START_EVENT => {
                let start = event.data.mapping_start;
                node(start.anchor, start.tag, 0, true)
            }
            unsafe_yaml::YAML_SEQUENCE_END_EVENT | unsafe_yaml::YAML_MAPPING_END_EVENT => {
                YamlEvent::End
            }
            _ => YamlEvent::Other,
        }
    }
}

/// Copies a text of the parser; `None` if it is null.
///
/// # Safety
/// `text` is null or ends with a NUL.
unsafe fn text(text: *const u8) -> Option<Vec<u8>> {
    if text.is_null() {
        return None;
    }
    // SAFETY: it is not null.
    let text = unsafe { CStr::from_ptr(text.cast()) };
    Some(text.to_bytes().to_owned())
}
