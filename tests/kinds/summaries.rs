//! Extractive summaries: how good they are on texts with summaries by people, and what holds for every text.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;
use rust_stemmers::{Algorithm, Stemmer};
use serde_json::json;
use steadfast::job::{Kind, KindDefinition};
use steadfast::kinds::SummarizeText;
use steadfast::kinds::text::{Summarizer, Summary, TextSettings, summarize};
use steadfast::{Job, JobRequest, Json, Status};
use unicode_segmentation::UnicodeSegmentation;

use crate::world::{Running, World};

/// One of our texts, and what a person wrote about it.
struct Sample {
    name: String,
    language: String,
    text: String,
    summary: String,
}

fn samples() -> Vec<Sample> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kinds/texts");
    let mut samples: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let whole = fs::read_to_string(&path).unwrap();
            let (text, summary) = whole.split_once("=== summary\n").unwrap();
            Sample { language: name[..2].to_owned(), name, text: text.to_owned(), summary: summary.to_owned() }
        })
        .collect();
    samples.sort_by(|one, other| one.name.cmp(&other.name));
    samples
}

/// What ROUGE-1 counts: stems of all words; of Japanese, pairs of characters.
fn units(text: &str, language: &str) -> HashMap<String, usize> {
    let mut found = HashMap::new();
    let mut count = |unit: String| *found.entry(unit).or_default() += 1;
    if language == "ja" {
        let characters: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
        characters.windows(2).for_each(|pair| count(pair.iter().collect()));
        return found;
    }
    let stemmer = Stemmer::create(match language {
        "de" => Algorithm::German,
        "fr" => Algorithm::French,
        _ => Algorithm::English,
    });
    for word in text.unicode_words() {
        let word = word.to_lowercase();
        word.split(['\'', '’']).filter(|part| !part.is_empty()).for_each(|part| count(stemmer.stem(part).into_owned()));
    }
    found
}

/// ROUGE-1 as F1, 0 to 100.
fn rouge(text: &str, reference: &str, language: &str) -> f64 {
    let (text, reference) = (units(text, language), units(reference, language));
    let common: usize = text.iter().map(|(unit, count)| *count.min(reference.get(unit).unwrap_or(&0))).sum();
    let total: usize = text.values().chain(reference.values()).sum();
    200.0 * common as f64 / total as f64
}

/// The first sentences, up to the budget; the last one is cut, so that all of the budget is used.
fn first_sentences(text: &str, max_words: usize) -> String {
    let mut end = 0;
    for (at, word) in text.unicode_word_indices() {
        if words(&text[..at + word.len()]) > max_words {
            break;
        }
        end = at + word.len();
    }
    text[..end].to_owned()
}

/// As the summaries count: two characters are a word where there are no spaces.
fn words(text: &str) -> usize {
    summarize(text, usize::MAX).words
}

#[test]
fn summaries_are_better_than_the_first_sentences() {
    let samples = samples();
    assert!(samples.len() >= 20, "the texts are not found");
    let (mut ours, mut first) = (0.0, 0.0);
    for Sample { name, language, text, summary: reference } in &samples {
        let budget = words(reference);
        let summary = summarize(text, budget);
        let of_ours = rouge(&summary.text, reference, language);
        let of_first = rouge(&first_sentences(text, budget), reference, language);
        println!("{name}: {of_ours:.1}, the first sentences {of_first:.1}; {} of {budget} words", summary.words);
        ours += of_ours / samples.len() as f64;
        first += of_first / samples.len() as f64;
    }
    println!("ROUGE-1: {ours:.2}, the first sentences {first:.2}");
    assert!(ours >= first + 3.0, "{ours:.2} is not 3 points better than {first:.2}");
}

#[test]
fn the_language_of_every_text_is_recognized() {
    let expected = HashMap::from([("en", "eng"), ("de", "deu"), ("fr", "fra"), ("ja", "jpn")]);
    for Sample { name, language, text, .. } in samples() {
        assert_eq!(summarize(&text, 50).language, Some(expected[language.as_str()]), "{name}");
    }
}

/// Everything but white space, which is collapsed.
fn visible(text: &str) -> Vec<char> {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Whether `part` can be had from `whole` by leaving characters out.
fn is_subsequence(part: &[char], whole: &[char]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|c| whole.any(|other| other == c))
}

fn holds_for(text: &str, max_words: usize) -> Summary {
    let summary = summarize(text, max_words);
    assert_eq!(summary, summarize(text, max_words), "the same text has the same summary");
    assert!(summary.words <= max_words, "{summary:?} is longer than {max_words} words");
    assert_eq!(summary.words, words(&summary.text), "{summary:?}");
    let chosen = visible(summary.text.strip_suffix('…').unwrap_or(&summary.text));
    assert!(is_subsequence(&chosen, &visible(text)), "{summary:?} is not taken from {text:?}");
    summary
}

/// Sentences that are recognized as such in any order, with words in common.
fn sentence() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "river",
        "rivers",
        "bridge",
        "bridges",
        "open",
        "opened",
        "the",
        "of",
        "3.14",
        "Mr. Rowe",
        "e.g. Berlin",
        "über",
        "мост",
    ]);
    let western = (vec(word, 3..12), prop::sample::select(vec![".", "!", "?", ".”", "…"]))
        .prop_map(|(words, end)| format!("So {} it{end}", words.join(" ")));
    let character = prop::sample::select(vec!['和', '紙', '橋', 'は', 'の', 'る', 'カ', 'ー']);
    let japanese = vec(character, 8..40).prop_map(|letters| format!("{}。", letters.iter().collect::<String>()));
    prop_oneof![4 => western, 1 => japanese]
}

/// Anything: letters of all scripts, marks, line breaks, control characters.
fn anything() -> impl Strategy<Value = String> {
    let marks = prop::sample::select(vec![
        '.', '!', '?', '。', '…', '\n', '\r', ' ', '\u{3000}', '\u{a0}', '"', '»', '“', ')', '-', '#', '1', 'a', 'Z',
        'ß', '和', 'の', 'カ', 'ー', 'ก', '\u{e33}', '\u{308}', '\u{200d}', '👩', '🇩', '\'', '\0', '\u{feff}', 'İ',
        'ﬁ',
    ]);
    vec(prop_oneof![3 => marks, 1 => any::<char>()], 0..400).prop_map(|letters| letters.into_iter().collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn a_summary_is_whole_sentences_of_the_text_in_their_order(
        sentences in vec((sentence(), prop::sample::select(vec![" ", "\n\n"])), 1..40),
        max_words in 1usize..120,
    ) {
        let text: String = sentences.iter().map(|(sentence, space)| format!("{sentence}{space}")).collect();
        let summary = holds_for(&text, max_words);
        let is_cut = summary.text.ends_with('…') && summary.sentences == 1;
        if !is_cut {
            let mut rest = &*summary.text;
            let mut found = 0;
            for (sentence, _) in &sentences {
                if let Some(after) = rest.trim_start().strip_prefix(sentence.as_str()) {
                    (rest, found) = (after, found + 1);
                }
            }
            prop_assert_eq!(rest.trim(), "", "of {:?}", summary);
            prop_assert_eq!(found, summary.sentences);
        }
        prop_assert_eq!(summary.of_sentences, sentences.len());
    }

    #[test]
    fn any_text_has_a_summary_within_its_limit(text in anything(), max_words in 1usize..60) {
        holds_for(&text, max_words);
    }
}

fn start(world: &World) -> Running {
    let summarizer = Summarizer::new(TextSettings::new());
    Running::start(world.worker(SummarizeText::KIND, move |payload: Json, context| {
        let summarizer = summarizer.clone();
        async move { summarizer.run(payload.decode()?, &context).await }
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_has_its_summary_as_its_result() {
    let sample = samples().into_iter().find(|sample| sample.name == "en-tides").unwrap();
    for world in World::both().await {
        world.queue.declare::<SummarizeText>().await.unwrap();
        let worker = start(&world);
        let short = world.enqueue(SummarizeText::new(&*sample.text).max_words(60)).await;
        let by_default = world.enqueue(SummarizeText::new(&*sample.text)).await;
        let job = world.ends(short).await;
        assert_eq!((job.status, job.max_attempts), (Status::Succeeded, 5), "{job:?}");
        let expected = summarize(&sample.text, 60);
        assert_eq!(
            job.result.unwrap().decode::<serde_json::Value>().unwrap(),
            json!({
                "summary": expected.text,
                "words": expected.words,
                "sentences": expected.sentences,
                "of_sentences": 22,
                "method": "extractive",
                "language": "eng",
            })
        );
        let result: serde_json::Value = world.ends(by_default).await.result.unwrap().decode().unwrap();
        assert!((60..=100).contains(&result["words"].as_u64().unwrap()), "{result}");
        worker.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_job_that_no_schema_would_take_fails_for_good() {
    let world = World::sqlite().await;
    world.queue.put_kind(KindDefinition::any(Kind::new(SummarizeText::KIND).unwrap())).await.unwrap();
    let worker = start(&world);
    let request = JobRequest::of(&SummarizeText::new("text").max_words(0)).unwrap();
    let job = world.ends(world.queue.enqueue_request(request).await.unwrap().job.id).await;
    assert_eq!((job.status, job.attempts), (Status::FailedPermanent, 1));
    assert_eq!(job.last_error.as_deref(), Some("max_words is 0: it must be 1 to 10000"));
    worker.stop().await;
}
