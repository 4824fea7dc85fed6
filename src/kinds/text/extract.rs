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
