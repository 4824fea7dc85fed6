//! The extractive summary: a text goes through `sentences`, `terms`, `rank` and `choose`, and comes out shorter.
//!
//! It makes no sentence of its own, calls nobody, and returns the same for the same text every time.

use super::choose::choose;
use super::rank::{Similarities, importance};
use super::sentences::{paragraphs, sentences};
use super::terms::{Terms, has_ordinals_with_a_stop, language};
use super::{Summary, words};

/// 2,000: twice the sentences of a payload of 256 KiB of prose. What is compared grows with the square.
pub(super) const SENTENCES_MAX: usize = 2_000;

/// 4 to 60 words: shorter ones are headings and interjections, longer ones tables and broken markup.
const CANDIDATE_WORDS: std::ops::RangeInclusive<usize> = 4..=60;

/// A sentence that may be chosen.
struct Candidate<'a> {
    text: &'a str,
    words: usize,
    /// Its place in its paragraph.
    place: usize,
}

/// Summarizes `text` in at most `max_words` words. `None` when `go_on` says no; it is asked between steps.
pub(super) fn extract(text: &str, max_words: usize, go_on: &dyn Fn() -> bool) -> Option<Summary> {
    let language = language(text);
    let paragraphs = paragraphs(text);
    let ordinals = has_ordinals_with_a_stop(language);
    let all: Vec<Candidate<'_>> = paragraphs.iter().flat_map(|paragraph| in_paragraph(paragraph, ordinals)).collect();
    let of_sentences = all.len();
    let summary = |text: String, sentences: usize| Summary {
        words: words::count(&text),
        text,
        sentences,
        of_sentences,
        language: language.map(|language| language.code()),
    };
    if words::count(text) <= max_words {
        return Some(summary(text.trim().to_owned(), of_sentences));
    }
    let candidates = bounded(all);
    if !go_on() {
        return None;
    }
    let mut terms = Terms::new(language);
    let bags: Vec<_> = candidates.iter().map(|candidate| terms.of(candidate.text)).collect();
    let similarities = Similarities::of(&bags, terms.len(), !terms.knows_stop_words(), go_on)?;
    let prior: Vec<f64> = (0..candidates.len()).map(|place| 1.0 / (1.0 + place as f64).sqrt()).collect();
    let importance = importance(&similarities, &prior, go_on)?;
    let lengths: Vec<usize> = candidates.iter().map(|candidate| candidate.words).collect();
    let chosen = choose(&importance, &lengths, &similarities, max_words);
    if chosen.is_empty() {
        let best = (0..candidates.len()).rev().max_by(|a, b| importance[*a].total_cmp(&importance[*b]));
        let best = best.map_or(text, |best| candidates[best].text);
        return Some(summary(words::cut(best, max_words), 1));
    }
    let sentences = chosen.len();
    Some(summary(join(chosen.into_iter().map(|chosen| candidates[chosen].text)), sentences))
}

fn in_paragraph(paragraph: &str, ordinals: bool) -> impl Iterator<Item = Candidate<'_>> {
    let sentences = sentences(paragraph, ordinals).into_iter().enumerate();
    sentences.map(|(place, text)| Candidate { text, words: words::count(text), place })
}

/// The sentences of a usable length, or all if there is none; at most [`SENTENCES_MAX`], the first of each paragraph
/// before the second of any.
fn bounded(mut all: Vec<Candidate<'_>>) -> Vec<Candidate<'_>> {
    if all.iter().any(|candidate| CANDIDATE_WORDS.contains(&candidate.words)) {
        all.retain(|candidate| CANDIDATE_WORDS.contains(&candidate.words));
    }
    all.retain(|candidate| candidate.words > 0);
    if all.len() <= SENTENCES_MAX {
        return all;
    }
    let mut places: Vec<usize> = (0..all.len()).collect();
    places.sort_by_key(|at| all[*at].place);
    places.truncate(SENTENCES_MAX);
    places.sort_unstable();
    let mut kept = places.into_iter().peekable();
    let mut at = 0;
    all.retain(|_| {
        at += 1;
        kept.next_if_eq(&(at - 1)).is_some()
    });
    all
}

/// Puts sentences behind each other; behind a wide full stop there is no space.
pub(super) fn join<'a>(sentences: impl Iterator<Item = &'a str>) -> String {
    let mut joined = String::new();
    for sentence in sentences {
        if !joined.is_empty() && !joined.ends_with(['。', '！', '？', '」', '』']) {
            joined.push(' ');
        }
        joined.push_str(sentence);
    }
    joined
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::kinds::text::rank::ROUNDS_MAX;
    use crate::kinds::text::summarize;

    /// 256 KiB: the largest payload.
    const PAYLOAD_MAX: usize = 256 * 1024;

    fn hostile() -> Vec<String> {
        let to_the_limit = |unit: &str| unit.repeat(PAYLOAD_MAX / unit.len());
        vec![
            format!("{}.", to_the_limit("word ")),
            to_the_limit("Go. "),
            to_the_limit("Go.\n\n"),
            to_the_limit("The same sentence is here again and again. "),
            to_the_limit("The same paragraph is here again and again.\n\n"),
            (0..PAYLOAD_MAX / 32).map(|n| format!("Number {n} follows number {}. ", n + 1)).collect(),
            format!("a.{}", to_the_limit(")")),
            to_the_limit("a"),
            to_the_limit("a."),
            to_the_limit("コ"),
            to_the_limit("紙。"),
            to_the_limit("a\u{308}"),
            to_the_limit("\u{308}"),
            to_the_limit(" "),
            to_the_limit("\n"),
            to_the_limit("- "),
            to_the_limit("1. "),
            to_the_limit("「。」と"),
        ]
    }

    #[test]
    fn hostile_texts_take_a_bounded_number_of_steps() {
        for text in hostile() {
            let steps = Cell::new(0);
            let counted = || {
                steps.set(steps.get() + 1);
                true
            };
            let beginning: String = text.chars().take(20).collect();
            let summary = extract(&text, 100, &counted).unwrap();
            assert!(steps.get() <= 1 + SENTENCES_MAX + ROUNDS_MAX, "{beginning:?} took {} steps", steps.get());
            assert!(summary.words <= 100, "{beginning:?}: {}", summary.words);
        }
    }

    #[test]
    fn it_ends_at_whichever_step_it_is_told_to() {
        let text =
            "One sentence is here to be read. Another sentence is there. A third sentence is nowhere to be seen.";
        let steps = Cell::new(0);
        let stop_at = |last: usize| {
            steps.set(0);
            extract(text, 12, &|| {
                steps.set(steps.get() + 1);
                steps.get() <= last
            })
        };
        assert!(stop_at(usize::MAX).is_some());
        let all = steps.get();
        assert!(all > 4, "{all}");
        for last in 0..all {
            assert_eq!((stop_at(last), steps.get()), (None, last + 1));
        }
    }

    #[test]
    fn of_too_many_sentences_the_first_of_every_paragraph_are_kept() {
        let paragraph = |n: usize| format!("First of paragraph {n} here. Second of paragraph {n} here.\n\n");
        let text: String = (0..SENTENCES_MAX - 10).map(paragraph).collect();
        let parts = paragraphs(&text);
        let all: Vec<_> = parts.iter().flat_map(|part| in_paragraph(part, false)).collect();
        let kept = bounded(all);
        assert_eq!(kept.len(), SENTENCES_MAX);
        assert_eq!(kept.iter().filter(|kept| kept.text.starts_with("First")).count(), SENTENCES_MAX - 10);
        assert_eq!(kept[19].text, "Second of paragraph 9 here.");
        assert_eq!(kept[20].text, "First of paragraph 10 here.");
    }

    #[test]
    fn headings_are_left_out_and_a_sentence_that_is_too_long_is_cut() {
        let text =
            "# Results\n\nThe bridge was closed for a year. The bridge is open again since Monday, says the mayor.";
        assert_eq!(summarize(text, 8).text, "The bridge was closed for a year.");
        assert_eq!(summarize("one two three four five six", 3).text, "one two three…");
        assert_eq!(summarize("One. Two. Three. Four.", 2).text, "One. Two.");
    }

    #[test]
    fn a_text_that_is_short_enough_comes_back_whole() {
        let text = "  First line.\n\nSecond line, and\n- an item ";
        let summary = summarize(text, 7);
        assert_eq!((summary.text.as_str(), summary.words), (text.trim(), 7));
        assert_eq!((summary.sentences, summary.of_sentences), (3, 3));
        assert_eq!(summarize("", 7).text, "");
    }

    #[test]
    fn japanese_sentences_are_joined_without_spaces() {
        let text = "和紙は長持ちする。和紙の繊維は長いからである。新聞は和紙ではないので崩れてしまう。紙は大切である。";
        let summary = summarize(text, 22);
        assert!(summary.sentences > 1 && !summary.text.contains(' '), "{summary:?}");
    }
}
