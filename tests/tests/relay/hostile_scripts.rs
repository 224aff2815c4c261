//! Scripts that mean harm, of sixteen families: each ends and says why, and nobody else notices.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use colibri_tests::hostile_scripts::{
    HostileEnds, HostileScript, place_for_hostile_scripts, run_hostile_scripts, wait_for_no_script,
};
use colibri_tests::{is_short, text_of};
use serde_json::json;

/// Two hundred; `benches/hostile_scripts.rs` runs ten thousand (`.ci/long`).
#[test]
fn hostile_scripts_end_and_say_why_while_others_are_served() {
    let count = if is_short() { 40 } else { 200 };
    let (directory, place) = place_for_hostile_scripts();
    let daemon = place.start(&[]);
    let (mut ends, over) = (HostileEnds::default(), AtomicBool::new(false));
    let calls = thread::scope(|scope| {
        let neighbour = scope.spawn(|| {
            let mut client = daemon.modern();
            let mut calls = 0;
            while !over.load(Ordering::Relaxed) {
                let result = client.call("calm__echo", json!({ "n": calls }));
                assert_eq!(text_of(&result), format!("{{\"n\":{calls}}}"), "{result}");
                calls += 1;
                // As often as a busy agent: the trail has each.
                thread::sleep(std::time::Duration::from_millis(20));
            }
            calls
        });
        let scripts = HostileScript::many(0x5eed, count);
        run_hostile_scripts(scripts, || daemon.modern(), &mut ends);
        over.store(true, Ordering::Relaxed);
        neighbour.join().unwrap()
    });
    println!("{calls} calls of a neighbour; {:#?}", ends.counts);
    assert!(ends.wrong.is_empty(), "{}", ends.wrong.join("\n"));
    assert!(calls > 0);
    wait_for_no_script(&directory);
    drop(daemon);
    place.assert_trail_is_sound();
}
