//! Counts words, also in scripts that do not put spaces between them, and cuts a text at a word.

use unicode_segmentation::UnicodeSegmentation;

/// In scripts without spaces, two characters count as one word: about what a translation into English comes to.
const CHARACTERS_PER_WORD: usize = 2;

/// Whether this is a letter of a script that is written without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    let in_script = matches!(c,
        '\u{0E00}'..='\u{0EFF}'     // Thai, Lao
        | '\u{1000}'..='\u{109F}'   // Burmese
        | '\u{1780}'..='\u{17FF}'   // Khmer
        | '\u{3005}'..='\u{3007}'   // 々 〆 〇
        | '\u{3041}'..='\u{30FF}'   // Hiragana, Katakana
        | '\u{31F0}'..='\u{31FF}'   // Katakana extensions
        | '\u{3400}'..='\u{4DBF}'   // Han
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{FF66}'..='\u{FF9F}'   // half-width Katakana
        | '\u{20000}'..='\u{3FFFF}' // rare Han
    );
    in_script && c.is_alphanumeric()
}

/// A running count of words.
#[derive(Default)]
struct Tally {
    words: usize,
    unspaced: usize,
}

impl Tally {
    fn total(&self) -> usize {
        self.words + self.unspaced.div_ceil(CHARACTERS_PER_WORD)
    }

    /// Adds one word as Unicode divides them.
    fn add(&mut self, word: &str) {
        match word.chars().filter(|c| is_unspaced(*c)).count() {
            0 => self.words += 1,
            characters => self.unspaced += characters,
        }
    }
}

/// How many words a text has.
pub(super) fn count(text: &str) -> usize {
    let mut tally = Tally::default();
    text.unicode_words().for_each(|word| tally.add(word));
    tally.total()
}

/// The beginning of the text, at most `max_words` long, with an ellipsis. For a text that is longer than that.
pub(super) fn cut(text: &str, max_words: usize) -> String {
    let mut tally = Tally::default();
    let mut end = 0;
    for (start, word) in text.unicode_word_indices() {
        if !word.chars().any(is_unspaced) {
            tally.add(word);
            if tally.total() > max_words {
                break;
            }
            end = start + word.len();
            continue;
        }
        // A word of Katakana can be as long as the text: it is cut between its characters.
        for (at, c) in word.char_indices() {
            tally.unspaced += usize::from(is_unspaced(c));
            if tally.total() > max_words {
                return format!("{}…", &text[..end]);
            }
            end = start + at + c.len_utf8();
        }
    }
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_characters_count_as_a_word_where_there_are_no_spaces() {
        assert_eq!(count("It doesn't cost 3.50 euros."), 5);
        assert_eq!(count("東京は大きい。"), 3);
        assert_eq!(count("コンピューター"), 4);
        assert_eq!(count("version 4 の紙"), 3);
        assert_eq!(count(" … – !"), 0);
    }

    #[test]
    fn a_text_is_cut_behind_a_word() {
        assert_eq!(cut("One, two; three four.", 2), "One, two…");
        assert_eq!(cut("古い寺の蔵を開ける", 2), "古い寺の…");
        assert_eq!(cut("コンピューター", 1), "コン…");
        assert_eq!(cut("word", 0), "…");
    }
}
