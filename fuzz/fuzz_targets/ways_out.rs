#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| colibri_fuzz::ways_out::run(data));
