//! A batch as lines, in pieces that memory can hold.

use posthaste_core::{Message, cloudevents::json_line};

/// Size from which a piece is written; one line may be larger.
const PIECE: usize = 4 << 20;

/// What every line begins with.
pub(crate) const BEGINNING: &[u8] = br#"{"specversion":"1.0","id":""#;

/// Some messages of a batch as lines.
pub(crate) struct Piece {
    /// The lines, each with its end.
    pub text: Vec<u8>,
    /// Where the line of each message ends.
    pub ends: Vec<usize>,
}

/// The lines of `batch`, piece by piece, in its order.
pub(crate) fn pieces(batch: &[Message]) -> impl Iterator<Item = Piece> {
    let mut left = batch.iter();
    std::iter::from_fn(move || {
        let mut piece = Piece { text: Vec::new(), ends: Vec::new() };
        for message in left.by_ref() {
            piece.text.append(&mut json_line(message));
            piece.text.push(b'\n');
            piece.ends.push(piece.text.len());
            if piece.text.len() >= PIECE {
                break;
            }
        }
        (!piece.ends.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_begins_in_the_way_by_which_a_half_one_is_known() {
        let piece = pieces(&[crate::common::text("a")]).next().unwrap();
        assert!(piece.text.starts_with(BEGINNING), "{}", String::from_utf8_lossy(&piece.text));
    }
}
