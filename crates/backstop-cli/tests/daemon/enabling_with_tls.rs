//! `backstop target` asks a daemon whose port has TLS, and trusts nobody else.

use backstop_admin::{Role, Token};
use backstop_testkit::certificates::{Authority, Certified};

use crate::receiver::Receiver;
use crate::support::{Daemon, Place};

/// A daemon with one webhook, whose port has this certificate.
fn place(webhook: &str, certified: &Certified) -> Place {
    let settings = format!(
        "outbox:
  name: orders
  database: {{url: 'sqlite:orders.db'}}
  poller: {{interval-ms: 50}}
  handlers:
    - aggregate-type: Order
      event-type: OrderPlaced
      http: {{url: '{webhook}', allowed-networks: 127.0.0.0/8, disabled-pause: 100ms}}
server:
  address: '127.0.0.1:0'
  tls: {{certificate: file:server.pem, key: file:server.key}}
  tokens:
    - {{name: hands, role: operator, sha256: {}}}
",
        Token::of("", Role::Operator, "do").hash_in_hex()
    );
    let place = Place::with(&settings).variable("BACKSTOP_TOKEN", "do");
    std::fs::write(place.file("server.pem"), &certified.certificate).unwrap();
    std::fs::write(place.file("server.key"), &certified.key).unwrap();
    place
}

/// The daemon's address by a name that certificates have.
fn url(daemon: &Daemon) -> String {
    let (_, port) = daemon.address.rsplit_once(':').unwrap();
    format!("https://localhost:{port}")
}

#[tokio::test]
async fn a_target_is_enabled_over_tls() {
    let authority = Authority::new();
    let receiver = Receiver::answering(410);
    let place = place(&receiver.url(), &authority.server(&["localhost"]));
    std::fs::write(place.file("ca.pem"), authority.pem()).unwrap();
    let daemon = place.serve();
    let orders = place.orders().await;
    orders.insert("o-1").await;
    let (to, name) = (url(&daemon), receiver.url().trim_end_matches("/hooks").to_owned());
    daemon.wait_for(|| {
        let listed = place.run(&["target", "list", "--url", &to, "--ca", "ca.pem"]).with(0).said;
        listed.contains("disabled").then_some(())
    });
    receiver.answer(200);
    let enabled = place.run(&["target", "enable", &name, "--url", &to, "--ca", "ca.pem"]).with(0);
    assert!(enabled.complained.contains("it is enabled"), "{enabled:?}");
    orders.until("o-1", 1).await;
    daemon.end("-TERM").with(0);
}

/// The settings file of the daemon says where it is, that it speaks TLS, and what certificate it shows.
#[test]
fn the_settings_file_alone_is_enough_where_its_certificate_vouches_for_itself() {
    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let certified = Certified { certificate: own.cert.pem(), key: own.signing_key.serialize_pem() };
    let place = place("http://127.0.0.1:9/hooks", &certified);
    let daemon = place.serve();
    // As if the file named the port that the daemon has got.
    let place = place.variable("BACKSTOP__SERVER__ADDRESS", daemon.address.clone());
    let listed = place.run(&["target", "list"]).with(0);
    assert!(listed.said.contains("http://127.0.0.1:9"), "{listed:?}");
    daemon.end("-TERM").with(0);
}

#[test]
fn a_daemon_that_cannot_be_trusted_gets_no_token() {
    let authority = Authority::new();
    let unknown = "no root certificate that is known here vouches for its certificate; name the file of its root with --ca";
    let (ours, others) = (Some(authority.pem()), Some(Authority::new().pem()));
    for (certified, ca, told) in [
        (authority.server(&["localhost"]), &None, unknown),
        (authority.server(&["localhost"]), &others, unknown),
        (authority.server(&["backstop.example"]), &ours, "its certificate is for another name: "),
        (authority.expired_server(&["localhost"]), &ours, "its certificate has expired: "),
    ] {
        let place = place("http://127.0.0.1:9/hooks", &certified);
        let daemon = place.serve();
        let to = url(&daemon);
        let mut arguments = vec!["target", "list", "--url", &to];
        if let Some(ca) = ca {
            std::fs::write(place.file("ca.pem"), ca).unwrap();
            arguments.extend(["--ca", "ca.pem"]);
        }
        let ended = place.run(&arguments).with(1);
        let told = format!("error: {to} cannot be trusted: {told}");
        assert!(ended.complained.starts_with(&told), "{told}: {}", ended.complained);
        daemon.end("-TERM").with(0);
    }
}

#[test]
fn a_scheme_that_is_not_the_daemons_is_told() {
    let authority = Authority::new();
    let encrypted = place("http://127.0.0.1:9/hooks", &authority.server(&["localhost"]));
    let daemon = encrypted.serve();
    let plainly = url(&daemon).replace("https", "http");
    let ended = encrypted.run(&["target", "list", "--url", &plainly]).with(1);
    let told = "does not speak plain HTTP; with `server.tls` the address of a daemon begins with https://";
    assert_eq!(ended.complained, format!("error: {plainly} {told}\n"));
    daemon.end("-TERM").with(0);

    let plain = Place::with(
        "outbox: {database: {url: 'sqlite:orders.db'}, handlers: [{event-type: T, log: }]}\nserver: {address: \
         '127.0.0.1:0'}\n",
    );
    let daemon = plain.serve();
    let to = url(&daemon);
    let ended = plain.run(&["target", "list", "--url", &to]).with(1);
    let told = "does not speak TLS; without `server.tls` the address of a daemon begins with http://";
    assert_eq!(ended.complained, format!("error: {to} {told}\n"));
    daemon.end("-TERM").with(0);
}
