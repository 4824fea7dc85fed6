//! Which language a text is in, and the terms of its sentences: stems of words without the stop words, pairs of
//! characters in scripts that do not put spaces between words.
//!
//! Nothing is ranked here: that is `rank`.

use std::collections::{HashMap, HashSet};

use rust_stemmers::{Algorithm, Stemmer};
use unicode_segmentation::UnicodeSegmentation;
use whatlang::Lang;

use super::words::is_unspaced;

/// 16 KiB: some ten pages say which language it is; the rest only costs time.
const SAMPLE_BYTES: usize = 16 * 1024;

/// 64 bytes: what is longer is not a word that a stemmer knows.
const STEMMED_BYTES_MAX: usize = 64;

/// 6 letters: the stem of a word in a language that was not recognized.
const PREFIX_LETTERS: usize = 6;

/// The language of the text, if that is certain enough.
pub(super) fn language(text: &str) -> Option<Lang> {
    let sample = &text[..text.floor_char_boundary(SAMPLE_BYTES)];
    let found = whatlang::detect(sample)?;
    found.is_reliable().then(|| found.lang())
}

/// Whether a number with a full stop is an ordinal in this language.
pub(super) fn has_ordinals_with_a_stop(language: Option<Lang>) -> bool {
    use Lang::{Ces, Dan, Deu, Est, Fin, Hrv, Hun, Lav, Nob, Pol, Slk, Slv, Srp, Tur};
    let ordinals = [Ces, Dan, Deu, Est, Fin, Hrv, Hun, Lav, Nob, Pol, Slk, Slv, Srp, Tur];
    language.is_some_and(|language| ordinals.contains(&language))
}

/// Whether the language is written without spaces between words.
#[cfg(feature = "kinds-http")]
pub(super) fn is_unspaced_language(language: Option<Lang>) -> bool {
    language.is_some_and(|language| [Lang::Cmn, Lang::Jpn, Lang::Khm, Lang::Mya, Lang::Tha].contains(&language))
}

/// The stemmer of a language, and the code of its stop words.
fn knowledge(language: Lang) -> Option<(Algorithm, &'static str)> {
    Some(match language {
        Lang::Ara => (Algorithm::Arabic, "ar"),
        Lang::Dan => (Algorithm::Danish, "da"),
        Lang::Deu => (Algorithm::German, "de"),
        Lang::Ell => (Algorithm::Greek, "el"),
        Lang::Eng => (Algorithm::English, "en"),
        Lang::Fin => (Algorithm::Finnish, "fi"),
        Lang::Fra => (Algorithm::French, "fr"),
        Lang::Hun => (Algorithm::Hungarian, "hu"),
        Lang::Ita => (Algorithm::Italian, "it"),
        Lang::Nld => (Algorithm::Dutch, "nl"),
        Lang::Nob => (Algorithm::Norwegian, "no"),
        Lang::Por => (Algorithm::Portuguese, "pt"),
        Lang::Ron => (Algorithm::Romanian, "ro"),
        Lang::Rus => (Algorithm::Russian, "ru"),
        Lang::Spa => (Algorithm::Spanish, "es"),
        Lang::Swe => (Algorithm::Swedish, "sv"),
        Lang::Tam => (Algorithm::Tamil, "ta"),
        Lang::Tur => (Algorithm::Turkish, "tr"),
        _ => return None,
    })
}

/// The terms of one sentence with how often each occurs, in ascending order.
pub(super) type Bag = Vec<(u32, f32)>;

/// Turns sentences into terms. A term is a number, in the order of first appearance.
pub(super) struct Terms {
    stemmer: Option<Stemmer>,
    stop_words: HashSet<&'static str>,
    numbers: HashMap<String, u32>,
}

impl Terms {
    pub(super) fn new(language: Option<Lang>) -> Self {
        let knowledge = language.and_then(knowledge);
        let stop_words = knowledge.and_then(|(_, code)| stop_words::lookup(code)).unwrap_or_default();
        Self {
            stemmer: knowledge.map(|(algorithm, _)| Stemmer::create(algorithm)),
            stop_words: stop_words.iter().copied().collect(),
            numbers: HashMap::new(),
        }
    }

    /// Whether stop words are left out already; if not, the frequent words have to be.
    pub(super) fn knows_stop_words(&self) -> bool {
        !self.stop_words.is_empty()
    }

    /// How many different terms were seen.
    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn of(&mut self, sentence: &str) -> Bag {
        let mut found = Vec::new();
        for word in sentence.unicode_words().filter(|word| !word.chars().any(is_unspaced)) {
            let word = word.to_lowercase();
            // `l'eau`, `moon's`, `don't`: what is left of one letter says nothing.
            for part in word.split(['\'', '’']) {
                if part.chars().nth(1).is_some() && !self.stop_words.contains(part) && !self.stop_words.contains(&*word)
                {
                    found.push(self.number(self.stem(part)));
                }
            }
        }
        self.pairs(sentence, &mut found);
        found.sort_unstable();
        let groups = found.chunk_by(|one, other| one == other);
        groups.map(|group| (group[0], group.len() as f32)).collect()
    }

    fn stem(&self, word: &str) -> String {
        match &self.stemmer {
            Some(stemmer) if word.len() <= STEMMED_BYTES_MAX => stemmer.stem(word).into_owned(),
            Some(_) => word.to_owned(),
            None => word.chars().take(PREFIX_LETTERS).collect(),
        }
    }

    /// Pairs of neighbouring characters. Two Hiragana are an ending or a particle, as a rule: what stop words are elsewhere.
    fn pairs(&mut self, sentence: &str, found: &mut Vec<u32>) {
        let is_hiragana = |c: char| matches!(c, '\u{3041}'..='\u{309F}');
        let mut previous: Option<char> = None;
        for c in sentence.chars() {
            let current = is_unspaced(c).then_some(c);
            if let (Some(first), Some(second)) = (previous, current)
                && !(is_hiragana(first) && is_hiragana(second))
            {
                found.push(self.number(String::from_iter([first, second])));
            }
            previous = current;
        }
    }

    fn number(&mut self, term: String) -> u32 {
        let next = self.numbers.len() as u32;
        *self.numbers.entry(term).or_insert(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_recognized_and_noise_is_not() {
        let german = "Ein Sauerteig besteht aus nichts als Mehl und Wasser, in denen sich Bakterien vermehrt haben.";
        assert_eq!(language(german), Some(Lang::Deu));
        assert_eq!(language("夕方の四時になると、松の湯の前に小さな列ができる。"), Some(Lang::Jpn));
        assert_eq!(language("1234 5678 !?"), None);
        // The sample would end inside a character.
        let mut long = german.repeat(SAMPLE_BYTES / german.len() + 1);
        long.truncate(SAMPLE_BYTES - 1);
        assert_eq!(language(&format!("{long}üü")), Some(Lang::Deu));
    }

    #[test]
    fn forms_of_a_word_are_one_term_and_stop_words_are_none() {
        let mut terms = Terms::new(Some(Lang::Eng));
        assert_eq!(terms.of("The connection was connected"), [(0, 2.0)]);
        assert_eq!(terms.of("It doesn't have the moon's tides"), [(1, 1.0), (2, 1.0)]);
        let mut terms = Terms::new(Some(Lang::Fra));
        assert_eq!(terms.of("l'eau de l’eau"), [(0, 2.0)]);
        let mut terms = Terms::new(None);
        assert_eq!(terms.of("Straßenbahn straßenbau"), [(0, 2.0)]);
    }

    #[test]
    fn japanese_terms_are_pairs_of_characters_without_the_endings() {
        let mut terms = Terms::new(Some(Lang::Jpn));
        // 和紙, 紙は, は長, 長い; not い。 and not です.
        assert_eq!(terms.of("和紙は長いです。").len(), 4);
    }
}
