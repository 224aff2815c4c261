#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| colibri_fuzz::model::run(data));
