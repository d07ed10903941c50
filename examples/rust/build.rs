//! Links with the library that `tvmconv export-c` wrote to CONV_DIR.
fn main() {
    let folder = std::env::var("CONV_DIR").expect("set CONV_DIR to the folder that tvmconv export-c wrote");
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:rustc-link-lib=static=conv");
    println!("cargo:rerun-if-env-changed=CONV_DIR");
    println!("cargo:rerun-if-changed={folder}/libconv.a");
}
