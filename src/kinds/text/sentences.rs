//! Divides a text into paragraphs and those into sentences, in one pass over the characters.
//!
//! The sentence rules of Unicode (UAX 29) are not used: their lookahead takes quadratic time on a full stop that is
//! followed by many brackets, and they end sentences at every line break and after most abbreviations.

/// 45 columns: shorter lines that are followed by another one were ended on purpose, longer ones were wrapped.
const WRAPPED_FROM_COLUMNS: usize = 45;

/// Abbreviations that stand in front of a capital letter, without their full stop. Single letters and forms like `z.B`
/// need not be listed.
const ABBREVIATIONS: &[&str] = &[
    "approx", "bijv", "bzw", "ca", "cf", "chap", "col", "dept", "dhr", "dipl", "dott", "dr", "env", "evtl", "fig",
    "gen", "ggf", "hr", "hrsg", "ing", "inkl", "jr", "lt", "mevr", "mio", "mlle", "mme", "mr", "mrd", "mrs", "ms",
    "nr", "núm", "pp", "prof", "pág", "rev", "sgt", "sig", "sog", "sr", "sra", "srta", "st", "str", "tel", "vgl", "vs",
    "zzgl", "г", "им", "ул",
];

/// The paragraphs, list items and headings of a text. White space is collapsed and wrapped lines are joined.
pub(super) fn paragraphs(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut current = String::new();
    let mut wraps = false;
    for line in text.split('\n').map(str::trim) {
        let (starts_block, line) = block_start(line, &current);
        if (line.is_empty() || starts_block || !wraps) && !current.is_empty() {
            found.push(std::mem::take(&mut current));
        }
        for (nth, word) in line.split_whitespace().enumerate() {
            let joins_wide = nth == 0 && current.ends_with(is_wide) && word.starts_with(is_wide);
            if !current.is_empty() && !joins_wide {
                current.push(' ');
            }
            current.push_str(word);
        }
        wraps = line.chars().map(|c| 1 + usize::from(is_wide(c))).sum::<usize>() >= WRAPPED_FROM_COLUMNS;
    }
    if !current.is_empty() {
        found.push(current);
    }
    found
}

/// Whether the line begins a list item or a heading, and the line without its mark. Numbers stay.
fn block_start<'a>(line: &'a str, before: &str) -> (bool, &'a str) {
    if let Some(heading) = line.strip_prefix('#') {
        return (true, heading.trim_start_matches('#').trim_start());
    }
    let marked = ["- ", "* ", "+ ", "• ", "– "].iter().find_map(|mark| line.strip_prefix(mark));
    if let Some(item) = marked {
        return (true, item.trim_start());
    }
    let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
    // More than two digits are a year; inside a sentence they are a date.
    let is_numbered = matches!(line.len() - rest.len(), 1 | 2) && (rest.starts_with(". ") || rest.starts_with(") "));
    (is_numbered && before.ends_with(|c| is_terminator(c) || c == ':'), line)
}

/// Han, Kana and their punctuation: two columns wide, no space between them.
fn is_wide(c: char) -> bool {
    matches!(c, '\u{3000}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}' | '\u{FF00}'..='\u{FFEF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Whether the character can end a sentence.
fn is_terminator(c: char) -> bool {
    is_wide_terminator(c)
        || matches!(c, '.' | '!' | '?' | '…' | '‼'..='⁉' | '؟' | '۔' | '।' | '॥' | '։' | '።' | '။' | '។')
}

/// Whether it ends a sentence without a space behind it.
fn is_wide_terminator(c: char) -> bool {
    matches!(c, '。' | '！' | '？' | '｡' | '．')
}

/// Quotation marks and brackets that belong to the sentence whose full stop they follow. German closes with `“`.
fn is_closing(c: char) -> bool {
    matches!(c, ')' | ']' | '}' | '"' | '\'' | '”' | '“' | '’' | '»' | '›' | '」' | '』' | '）' | '】' | '》')
}

/// The sentences of one paragraph from [`paragraphs`], in order and without the space around them.
///
/// `ordinals`: a number of one or two digits with a full stop is an ordinal and ends nothing (`am 14. Oktober`).
pub(super) fn sentences(paragraph: &str, ordinals: bool) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut end = 0;
    let mut characters = paragraph.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        if !is_terminator(c) {
            continue;
        }
        end = at + c.len_utf8();
        while let Some((at, c)) = characters.next_if(|(_, next)| is_terminator(*next) || is_closing(*next)) {
            end = at + c.len_utf8();
        }
        // French sets a space in front of the mark.
        if let Some(rest) = paragraph[end..].strip_prefix([' ', '\u{a0}', '\u{202f}'])
            && rest.starts_with('»')
        {
            characters.nth(1);
            end = paragraph.len() - rest.len() + '»'.len_utf8();
        }
        if ends_here(&paragraph[start..end], &paragraph[end..], ordinals) {
            found.push(paragraph[start..end].trim());
            start = end;
        }
    }
    if end < paragraph.len() || start < end {
        found.push(paragraph[start..].trim());
    }
    found.retain(|sentence| !sentence.is_empty());
    found
}

/// 8: quotation marks, a dash, brackets. What follows is not looked through any further.
const MARKS_BEFORE_A_WORD_MAX: usize = 8;

/// Whether a sentence that was read up to a terminator ends there.
fn ends_here(sentence: &str, rest: &str, ordinals: bool) -> bool {
    let bare = sentence.trim_end_matches(is_closing);
    let Some(next) = rest.chars().take(MARKS_BEFORE_A_WORD_MAX).find(|c| c.is_alphanumeric()) else {
        return rest.is_empty() || !rest.starts_with(char::is_alphanumeric);
    };
    if bare.ends_with(is_wide_terminator) {
        // 「…。」と: the quoted sentence is part of another one.
        let quoted = bare.len() < sentence.len();
        return !(quoted && matches!(next, '\u{3041}'..='\u{309F}'));
    }
    if !rest.starts_with(char::is_whitespace) || next.is_lowercase() {
        return false;
    }
    let Some(without_stop) = sentence.strip_suffix('.') else {
        return true;
    };
    let word = without_stop.rsplit(|c: char| c.is_whitespace() || is_opening(c)).next().unwrap_or_default();
    let is_ordinal = ordinals && word.len() <= 2 && !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    !is_ordinal && !is_abbreviation(word)
}

fn is_opening(c: char) -> bool {
    matches!(c, '(' | '[' | '"' | '„' | '“' | '«' | '‘' | '\'' | '’')
}

/// 12 bytes: the longest one that is listed is shorter.
const ABBREVIATION_BYTES_MAX: usize = 12;

fn is_abbreviation(word: &str) -> bool {
    if word.is_empty() || word.len() > ABBREVIATION_BYTES_MAX {
        return false;
    }
    // `J`, `z.B`, `e.g`, `U.S`, `Ph.D`.
    let short = |part: &str| part.chars().all(char::is_alphabetic) && (1..=2).contains(&part.chars().count());
    let initials = word.split('.').all(short) && (word.contains('.') || word.chars().count() == 1);
    initials || ABBREVIATIONS.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_end_at_their_marks_and_nowhere_else() {
        for (paragraph, expected) in [
            ("One. Two! Three? Four", vec!["One.", "Two!", "Three?", "Four"]),
            (
                "Dr. Weller pays 7,8 Mio. Euro, z. B. for Mr. Rowe. Done.",
                vec!["Dr. Weller pays 7,8 Mio. Euro, z. B. for Mr. Rowe.", "Done."],
            ),
            (
                "See J. R. Smith, e.g. Ph.D. Theses. It is 3.14 today.",
                vec!["See J. R. Smith, e.g. Ph.D. Theses.", "It is 3.14 today."],
            ),
            (
                "He said: \"Wait!\" and left. (She did not.) “Why?” – nobody knew.",
                vec!["He said: \"Wait!\" and left.", "(She did not.)", "“Why?” – nobody knew."],
            ),
            ("« Venez. » Elle rit.", vec!["« Venez. »", "Elle rit."]),
            (
                "雨が降る。「終わる。」と言った。本当？はい",
                vec!["雨が降る。", "「終わる。」と言った。", "本当？", "はい"],
            ),
            ("Wait... no. Wait... No.", vec!["Wait... no.", "Wait...", "No."]),
            ("22 votes to 17. After that.", vec!["22 votes to 17.", "After that."]),
            ("", vec![]),
            ("...", vec!["..."]),
        ] {
            assert_eq!(sentences(paragraph, false), expected);
        }
        assert_eq!(sentences("Am 14. Oktober. Nie.", true), ["Am 14. Oktober.", "Nie."]);
    }

    #[test]
    fn wrapped_lines_are_joined_and_blocks_are_kept_apart() {
        let text = "# Title\nA line that is long enough to have been wrapped by\nsomebody.\n\n- first  item\n- second\nshort\nline\n1. one\n";
        let expected =
            ["Title", "A line that is long enough to have been wrapped by somebody.", "first item", "second"];
        assert_eq!(paragraphs(text)[..4], expected);
        assert_eq!(paragraphs(text)[4..], ["short", "line", "1. one"]);
        let wrapped = "この行は折り返されたと考えられるほど十分に長い行です\nから、つながります。";
        assert_eq!(paragraphs(wrapped), [wrapped.replace('\n', "")]);
        assert_eq!(paragraphs("a\r\n\r\nb \t c"), ["a", "b c"]);
    }
}
