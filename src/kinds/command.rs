//! Kinds that are local commands from the settings file.
