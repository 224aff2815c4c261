//! Has the linker leave out all symbols of release builds: the profile's `strip` is lost on a
//! package that has settings of its own in it (here `opt-level`), and Cargo refuses `strip` among
//! those.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("PROFILE").as_deref() == Ok("release") {
        println!("cargo::rustc-link-arg-bins=-Wl,--strip-all");
    }
}
