//! `init`, `token` and `reference`: what they write.

use std::path::Path;

use crate::support::Place;

#[test]
fn init_writes_a_file_that_check_accepts_and_never_overwrites_one() {
    let place = Place::empty();
    let said = place.run(&["init"]).with(0).said;
    assert_eq!(
        said,
        "wrote backstop.yaml; look it through, then run `backstop serve --config backstop.yaml`\n"
    );
    assert!(place.run(&["check"]).with(0).said.starts_with("backstop.yaml is fine\n"));

    std::fs::write(place.file("mine.yaml"), "mine").unwrap();
    let told = place.run(&["init", "mine.yaml"]).with(1).complained;
    assert_eq!(told, "error: mine.yaml already exists and was not changed; name another file\n");
    assert_eq!(std::fs::read_to_string(place.file("mine.yaml")).unwrap(), "mine");
    let told = place.run(&["init", "nowhere/backstop.yaml"]).with(1).complained;
    assert!(told.starts_with("error: cannot write nowhere/backstop.yaml: "), "{told}");
}

#[test]
fn tokens_are_random_and_say_how_they_are_kept() {
    let place = Place::empty();
    let make = || place.run(&["token", "--name", "eve", "--role", "operator"]).with(0).said;
    let (one, two) = (make(), make());
    assert_ne!(one, two);
    assert!(
        one.starts_with("token, shown only now: bst_")
            && one.contains("    - name: eve\n      role: operator\n")
    );
    place.run(&["token", "--role", "god"]).with(2);
}

#[test]
fn the_settings_in_the_guide_are_fine() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guides/run-the-daemon.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let files: Vec<_> = guide.split("```yaml\n").skip(1).collect();
    assert_eq!(files.len(), 3);
    for yaml in files {
        let yaml = yaml.split_once("```").unwrap().0;
        let page = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let place = Place::with(yaml)
            .variable("ORDERS_DATABASE_URL", "sqlite:orders.db")
            .variable("PAGE_CERTIFICATE", page.cert.pem())
            .variable("PAGE_KEY", page.signing_key.serialize_pem());
        let ended = place.run(&["check"]).with(0);
        assert_eq!(ended.complained, "");
    }
}

#[test]
fn the_reference_page_is_what_the_table_of_keys_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/config.md");
    let written = std::fs::read_to_string(page).unwrap_or_default();
    let rendered = Place::empty().run(&["reference"]).with(0).said;
    assert!(written == rendered, "the page differs; run `cargo run -- reference > docs/reference/config.md`");
}
